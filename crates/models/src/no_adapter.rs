//! The formats of the library `genai` in a build without the feature `more-providers`.

/// The formats, as the catalogue names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdapterKind {
    Gemini,
    Ollama,
    OpenAIResp,
}
