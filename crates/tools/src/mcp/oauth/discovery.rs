//! Finds the authorization server of a server, and what it offers.

use serde_json::Value;
use url::Url;

use super::address::{checked, covers, issuer_documents, resource_documents};
use super::challenge::{Challenge, scopes};
use super::fetch::{Answer, send, text, texts};
use crate::mcp::untrusted::line;

/// The resource and its authorization server.
#[derive(Debug)]
pub(super) struct Found {
    /// The resource as its metadata names it, byte for byte.
    pub(super) resource: String,
    /// The scopes of the resource.
    pub(super) scopes: Vec<String>,
    pub(super) authorization: AuthorizationServer,
}

/// The metadata of an authorization server.
///
/// Source: RFC 8414, section 2.
#[derive(Debug)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorize: Url,
    pub(super) token: Url,
    pub(super) register: Option<Url>,
    pub(super) revoke: Option<Url>,
    /// How clients with a secret show it; empty: it does not say.
    pub(super) auth_methods: Vec<String>,
    /// Whether `offline_access` can be asked for.
    pub(super) offers_offline: bool,
    /// Whether the answer of the browser always names the issuer.
    pub(super) names_issuer: bool,
    /// Whether it takes the address of a document for the id of a client.
    pub(super) takes_documents: bool,
}

/// Finds the authorization server of `server`. `is_open`: the server has taken a request without a token. `None`: it is open,
/// and has no metadata, so that it needs no token.
///
/// # Errors
/// A sentence, or its end: the metadata cannot be had, or breaks a rule.
pub(super) async fn discover(server: &Url, challenge: &Challenge, is_open: bool) -> Result<Option<Found>, String> {
    let Some(resource) = resource(server, challenge).await? else {
        if is_open {
            return Ok(None);
        }
        // Servers of 2025-03-26 are their own authorization servers.
        let origin = Url::parse(&server.origin().ascii_serialization()).map_err(|error| error.to_string())?;
        let mut bare = server.clone();
        bare.set_fragment(None);
        let authorization = authorization(origin.as_str(), &origin, server).await?;
        return Ok(Some(Found { resource: bare.into(), scopes: Vec::new(), authorization }));
    };
    let name = text(&resource, "resource").unwrap_or_default().to_owned();
    let Some(issuer) = texts(&resource, "authorization_servers").first().copied() else {
        return Err("its metadata names no authorization server".into());
    };
    let url = checked(issuer, "its authorization server", server)?;
    let scopes = scopes(&texts(&resource, "scopes_supported").join(" "));
    Ok(Some(Found { resource: name, scopes, authorization: authorization(issuer, &url, server).await? }))
}

/// The metadata of the resource; `None`: it has none.
async fn resource(server: &Url, challenge: &Challenge) -> Result<Option<Value>, String> {
    let named = challenge.resource_metadata.as_deref();
    let named = named.map(|named| checked(named, "the address of its metadata", server)).transpose()?;
    for url in named.into_iter().chain(resource_documents(server)) {
        let Some(document) = document(&url).await? else { continue };
        let Some(resource) = text(&document, "resource") else { continue };
        if !Url::parse(resource).is_ok_and(|resource| covers(&resource, server)) {
            let resource = line(resource, 200);
            return Err(format!(
                "its metadata is about another resource, {resource}: tokens for that one are not sent to it"
            ));
        }
        return Ok(Some(document));
    }
    Ok(None)
}

/// A document; `None`: there is none at this address.
async fn document(url: &Url) -> Result<Option<Value>, String> {
    let answer: Answer = match send(url, |client| client.get(url.clone())).await {
        Ok(answer) => answer,
        // A server that sends every unknown address to its pages has no document here.
        Err(none) if none.redirects => return Ok(None),
        Err(none) => return Err(none.why),
    };
    if answer.status.is_server_error() || answer.status.as_u16() == 429 {
        return Err(format!("{} answers {} for its metadata", url.host_str().unwrap_or_default(), answer.status));
    }
    Ok(answer.status.is_success().then(|| answer.object()).flatten())
}

/// The metadata of the authorization server `issuer`.
async fn authorization(issuer: &str, url: &Url, server: &Url) -> Result<AuthorizationServer, String> {
    for document_at in issuer_documents(url) {
        let Some(found) = document(&document_at).await? else { continue };
        let Some(named) = text(&found, "issuer") else { continue };
        // Only a slash at the end may differ: some servers add it to addresses.
        if named.trim_end_matches('/') != issuer.trim_end_matches('/') {
            let named = line(named, 200);
            return Err(format!("the metadata of its authorization server {} is that of {named}", line(issuer, 200)));
        }
        return read(&found, named, server);
    }
    Err(format!("its authorization server {} has no metadata", line(issuer, 200)))
}

fn read(found: &Value, issuer: &str, server: &Url) -> Result<AuthorizationServer, String> {
    let endpoint = |key: &str, what: &str| text(found, key).map(|url| checked(url, what, server)).transpose();
    let needed = |what: &str| format!("the metadata of its authorization server lacks {what}");
    let methods = texts(found, "code_challenge_methods_supported");
    if !methods.is_empty() && !methods.contains(&"S256") {
        return Err("its authorization server does not offer PKCE with S256".into());
    }
    let what = "the authorization endpoint";
    let authorize = endpoint("authorization_endpoint", what)?.ok_or_else(|| needed(what))?;
    let what = "the token endpoint";
    let token = endpoint("token_endpoint", what)?.ok_or_else(|| needed(what))?;
    Ok(AuthorizationServer {
        issuer: issuer.to_owned(),
        authorize,
        token,
        register: endpoint("registration_endpoint", "the registration endpoint")?,
        revoke: endpoint("revocation_endpoint", "the revocation endpoint")?,
        auth_methods: texts(found, "token_endpoint_auth_methods_supported").into_iter().map(str::to_owned).collect(),
        offers_offline: texts(found, "scopes_supported").contains(&"offline_access"),
        names_issuer: found["authorization_response_iss_parameter_supported"] == true,
        takes_documents: found["client_id_metadata_document_supported"] == true,
    })
}
