//! Names of attributes: the semantic conventions of OpenTelemetry for generative AI,
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/>.

pub(super) const OPERATION: &str = "gen_ai.operation.name";
pub(super) const PROVIDER: &str = "gen_ai.provider.name";
pub(super) const AGENT: &str = "gen_ai.agent.name";
pub(super) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(super) const REQUEST_MODEL: &str = "gen_ai.request.model";
pub(super) const RESPONSE_MODEL: &str = "gen_ai.response.model";
pub(super) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
pub(super) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
pub(super) const TOOL_NAME: &str = "gen_ai.tool.name";
pub(super) const TOOL_CALL: &str = "gen_ai.tool.call.id";
pub(super) const TOOL_TYPE: &str = "gen_ai.tool.type";
/// Content.
pub(super) const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// Content.
pub(super) const TOOL_RESULT: &str = "gen_ai.tool.call.result";
/// Content.
pub(super) const INPUT: &str = "gen_ai.input.messages";
/// Content.
pub(super) const OUTPUT: &str = "gen_ai.output.messages";
/// The kind of an error.
pub(super) const ERROR: &str = "error.type";
