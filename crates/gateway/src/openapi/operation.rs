//! One operation of the document.

use axum::http::Method;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::schemas::{Parameter, Schemas};
use crate::routes::openai::anthropic::AnthropicError;

/// Who may call an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// Everybody.
    Anyone,
    /// The holder of the token.
    Client,
    /// Operators.
    Operator,
    /// The holder of the secret of a routine's webhook.
    Secret,
    /// The holder of the secret that signs messages.
    Signer,
}

/// The content of a response.
#[derive(Clone, Copy)]
enum Content {
    Json(fn(&mut Schemas) -> Value),
    Text(&'static str),
    Events(fn(&mut Schemas) -> Value),
    Bytes,
}

/// The body of a request.
#[derive(Clone, Copy)]
enum Body {
    Json { schema: fn(&mut Schemas) -> Value, required: bool },
    Text,
    Bytes,
}

struct Response {
    status: u16,
    description: &'static str,
    content: Vec<Content>,
    headers: &'static [&'static str],
}

/// One operation: a method and a path, with its parameters and responses.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    id: &'static str,
    summary: &'static str,
    caller: Caller,
    query: Option<fn(&mut Schemas) -> Vec<Parameter>>,
    headers: Vec<&'static str>,
    body: Option<Body>,
    responses: Vec<Response>,
    errors: Vec<u16>,
}

/// An operation that the holder of the token may call.
pub(super) fn client(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation {
        method,
        path,
        id,
        summary,
        caller: Caller::Client,
        query: None,
        headers: Vec::new(),
        body: None,
        responses: Vec::new(),
        errors: Vec::new(),
    }
}

/// An operation that only operators may call.
pub(super) fn operator(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    client(method, path, id, summary).called_by(Caller::Operator)
}

impl Operation {
    /// Sets who may call it.
    pub(super) fn called_by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Adds query parameters.
    pub(super) fn query<T: JsonSchema>(self) -> Self {
        Self { query: Some(|schemas| schemas.parameters::<T>()), ..self }
    }

    /// Adds a request header, one of the parameters in the components.
    pub(super) fn header(mut self, name: &'static str) -> Self {
        self.headers.push(name);
        self
    }

    /// Sets a JSON object as the body.
    pub(super) fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Body::Json { schema: |schemas| schemas.input::<T>(), required: true }), ..self }
    }

    /// Sets a JSON object as the body, which may be absent.
    pub(super) fn optional_body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Body::Json { schema: |schemas| schemas.input::<T>(), required: false }), ..self }
    }

    /// Sets any bytes as the body.
    pub(super) fn bytes_body(self) -> Self {
        Self { body: Some(Body::Bytes), ..self }
    }

    /// Sets any text as the body.
    pub(super) fn text_body(self) -> Self {
        Self { body: Some(Body::Text), ..self }
    }

    fn response(mut self, status: u16, description: &'static str, content: Content) -> Self {
        match self.responses.iter_mut().find(|response| response.status == status) {
            Some(response) => response.content.push(content),
            None => self.responses.push(Response { status, description, content: vec![content], headers: &[] }),
        }
        self
    }

    /// Adds a JSON response. With several of one status, each body has one of their forms.
    pub(super) fn json<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.response(status, description, Content::Json(|schemas| schemas.output::<T>()))
    }

    /// Adds a response of this media type.
    pub(super) fn text(self, media_type: &'static str, description: &'static str) -> Self {
        self.response(200, description, Content::Text(media_type))
    }

    /// Adds a stream of server-sent events whose data is JSON of this type.
    pub(super) fn events<T: JsonSchema>(self, description: &'static str) -> Self {
        self.response(200, description, Content::Events(|schemas| schemas.output::<T>()))
    }

    /// Adds a response of any bytes.
    pub(super) fn bytes(self, description: &'static str) -> Self {
        self.response(200, description, Content::Bytes)
    }

    /// Adds headers to the last response, from those in the components.
    pub(super) fn with_headers(mut self, names: &'static [&'static str]) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers = names;
        }
        self
    }

    /// Adds error statuses beyond those that follow from the parameters.
    pub(super) fn errors(mut self, statuses: &[u16]) -> Self {
        self.errors.extend(statuses);
        self
    }

    fn is_guarded(&self) -> bool {
        matches!(self.caller, Caller::Client | Caller::Operator)
    }

    /// Whether it is of another API.
    fn is_foreign(&self) -> bool {
        self.path.starts_with("/v1/")
    }

    /// Whether it is of Anthropic's API.
    fn is_anthropic(&self) -> bool {
        AnthropicError::is_for(self.path)
    }

    /// The error statuses: those that follow from how requests are read, and those of this operation.
    fn all_errors(&self) -> Vec<u16> {
        let mut statuses = self.errors.clone();
        statuses.extend([400, 500]);
        if self.is_guarded() {
            statuses.extend([401, 403, 503]);
        }
        if self.path.contains('{') {
            statuses.push(404);
        }
        if self.query.is_some() || self.body.is_some() || self.path.contains("{key}") {
            statuses.push(422);
        }
        match self.body {
            Some(Body::Json { .. } | Body::Bytes) => statuses.extend([413, 415]),
            Some(Body::Text) => statuses.push(413),
            None => {}
        }
        if self.is_foreign() {
            statuses.retain(|status| *status != 422);
        }
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    }

    /// The operation object.
    pub(super) fn to_value(&self, schemas: &mut Schemas) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "summary": self.summary,
            "tags": [self.tag()],
            "responses": self.responses_value(schemas),
        });
        let parameters = self.parameters_value(schemas);
        if !parameters.is_empty() {
            operation["parameters"] = parameters.into();
        }
        if let Some(body) = self.body {
            operation["requestBody"] = body.to_value(schemas);
        }
        match self.caller {
            Caller::Anyone => operation["security"] = json!([]),
            Caller::Client => {}
            Caller::Operator => operation["x-belay-role"] = "operator".into(),
            Caller::Secret => operation["security"] = json!([{ "webhookSecret": [] }]),
            Caller::Signer => operation["security"] = json!([{ "webhookSignature": [] }]),
        }
        operation
    }

    /// The first part of the path that says something: `runs`, `sessions`, `openai`.
    fn tag(&self) -> &'static str {
        if self.is_foreign() {
            return if self.is_anthropic() { "anthropic" } else { "openai" };
        }
        self.path.trim_start_matches("/api/v1").split('/').nth(1).unwrap_or_default()
    }

    fn parameters_value(&self, schemas: &mut Schemas) -> Vec<Value> {
        let names = self.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let mut parameters: Vec<Value> = names.map(|name| path_parameter(self.path, name)).collect();
        for (name, mut schema, required) in self.query.map(|query| query(schemas)).unwrap_or_default() {
            let description = schema.as_object_mut().and_then(|fields| fields.remove("description"));
            // A list is one value, with commas.
            let is_list = schema["type"] == "array";
            let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
            if is_list {
                parameter["style"] = "form".into();
                parameter["explode"] = false.into();
            }
            if required {
                parameter["required"] = true.into();
            }
            if let Some(description) = description {
                parameter["description"] = description;
            }
            parameters.push(parameter);
        }
        let reference = |name: &&str| json!({ "$ref": format!("#/components/parameters/{name}") });
        parameters.extend(self.headers.iter().map(reference));
        parameters
    }

    fn responses_value(&self, schemas: &mut Schemas) -> Map<String, Value> {
        let mut responses = Map::new();
        for response in &self.responses {
            let names = ["x-request-id"].into_iter().chain(response.headers.iter().copied());
            let header = |name: &str| (name.to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
            let headers: Map<_, _> = names.map(header).collect();
            let mut content = Map::<String, Value>::new();
            for (media_type, schema) in response.content.iter().map(|content| content.to_parts(schemas)) {
                match content.get_mut(media_type) {
                    None => _ = content.insert(media_type.into(), json!({ "schema": schema })),
                    Some(Value::Object(known)) => {
                        let one = known.remove("schema").unwrap_or_default();
                        let mut forms = one["oneOf"].as_array().cloned().unwrap_or_else(|| vec![one]);
                        forms.push(schema);
                        known.insert("schema".into(), json!({ "oneOf": forms }));
                    }
                    Some(_) => {}
                }
            }
            let value = json!({ "description": response.description, "headers": headers, "content": content });
            responses.insert(response.status.to_string(), value);
        }
        let form = match self.is_foreign() {
            true if self.is_anthropic() => "AnthropicError",
            true => "OpenAiError",
            false => "Error",
        };
        for status in self.all_errors() {
            let reference = json!({ "$ref": format!("#/components/responses/{form}{status}") });
            responses.entry(status.to_string()).or_insert(reference);
        }
        responses
    }
}

impl Content {
    fn to_parts(self, schemas: &mut Schemas) -> (&'static str, Value) {
        match self {
            Self::Json(schema) => ("application/json", schema(schemas)),
            Self::Text(media_type) => (media_type, json!({ "type": "string" })),
            // The schema of one event, as common tools read it: OpenAPI 3.1 leaves this open.
            Self::Events(schema) => {
                let data = json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": schema(schemas) });
                let text = json!({ "type": "string" });
                let fields = json!({ "data": data, "event": text, "id": text });
                ("text/event-stream", json!({ "type": "object", "properties": fields, "required": ["data"] }))
            }
            Self::Bytes => ("*/*", json!({ "type": "string", "format": "binary" })),
        }
    }
}

impl Body {
    fn to_value(self, schemas: &mut Schemas) -> Value {
        match self {
            Self::Json { schema, required } => {
                json!({ "required": required, "content": { "application/json": { "schema": schema(schemas) } } })
            }
            Self::Text => json!({ "required": false, "content": { "text/plain": { "schema": { "type": "string" } } } }),
            Self::Bytes => {
                json!({ "required": true, "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } } })
            }
        }
    }
}

fn path_parameter(path: &str, name: &str) -> Value {
    let (schema, description) = match name {
        "id" if path.contains("/memory/") => (json!({ "type": "integer", "minimum": 0 }), "The number of the note."),
        "id" => (json!({ "type": "string", "format": "uuid" }), "The id."),
        "key" => (
            json!({ "type": "string", "minLength": 1, "maxLength": 256 }),
            "The key of the session: 1 to 256 bytes without control characters, percent-encoded.",
        ),
        "response" => (json!({ "type": "string", "minLength": 1 }), "The id of the response."),
        "token" => (json!({ "type": "string", "minLength": 1 }), "The token of the link."),
        "person" => (json!({ "type": "string", "minLength": 1 }), "The person, as `CHANNEL:ID`."),
        _ => (json!({ "type": "string", "minLength": 1 }), "The name."),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": description })
}
