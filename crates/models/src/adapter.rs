//! The formats that the library `genai` speaks.

pub(crate) use genai::adapter::AdapterKind;
