//! The files of the repository: the layers, and documents that agree with the code.

mod architecture;
mod documents;
