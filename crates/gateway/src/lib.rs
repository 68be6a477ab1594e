//! The HTTP listener: API, event streams, OpenAI-compatible endpoints, webhook.
