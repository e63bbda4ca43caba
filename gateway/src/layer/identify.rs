//! From bytes to facts: which deployment, which conversation, how large (R1, R8). Everything that takes time, hashing
//! above all, happens here, before any lock.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_shared::request::{Identity, Priority, RequestFacts};
use twox_hash::XxHash3_64;

use super::body::RequestBody;
use super::urgency;
use crate::deployment::{Deployment, Directory};
use crate::http1::fields::{Fields, Name, text};
use crate::openai::operation::PromptShape;
use crate::openai::request::{self, multipart, named, scan_named, splice_model};
use crate::openai::{ApiError, BadBody, BodyKind, Operation, Scan, scan};

/// Most answers that a request may ask for at a time, as far as they are reckoned with.
const CHOICES_MAX: u64 = 128;

/// A request that is understood.
#[derive(Debug)]
pub struct Identified {
    /// What it asks for.
    pub operation: Operation,
    /// Who serves it.
    pub deployment: Arc<Deployment>,
    /// What the dispatcher may know.
    pub facts: Arc<RequestFacts>,
    /// What goes to the replica: the client's bytes, the model's name changed where the engine knows another.
    pub body: RequestBody,
    /// The model's name as the client wrote it.
    pub model: String,
    /// What names the conversation, where something does.
    pub named_by: Option<NamedBy>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

/// What names a conversation (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// A header, by its place among those of the deployment.
    Header(usize),
    /// A field of the body.
    Body(request::NamedBy),
}

/// Understands a request.
///
/// # Errors
/// What to answer instead: 400 for a body or a header that makes no sense, 415 for a body that is compressed, 404 for a model that no deployment serves.
pub fn identify(
    operation: Operation,
    fields: &Fields,
    body: Bytes,
    directory: &Directory,
) -> Result<Identified, ApiError> {
    let plain = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    let codings = fields.all(Name::ContentEncoding).flat_map(|codings| codings.split(|byte| *byte == b','));
    if let Some(coding) = codings.map(<[u8]>::trim_ascii).find(|coding| !plain(coding)) {
        return Err(ApiError::coded_body(coding));
    }
    // What a header names needs no hash of its prompt.
    let expects_name = operation.prompt_shape() != PromptShape::Plain && directory.may_be_named(fields);
    let json = if expects_name { scan_named } else { scan };
    let mut scanned = scan_any(operation, fields, &body, json).map_err(|bad| ApiError::from(&bad))?;
    let Some(deployment) = directory.find(&scanned.model) else {
        return Err(ApiError::unknown_model(&scanned.model));
    };
    let priority = urgency::priority(fields, scanned.priority)?;
    let start_within = urgency::start_within(fields)?;
    let header = conversation_header(&deployment, fields);
    if expects_name && header.is_none() {
        // The header is another deployment's.
        scanned = scan_any(operation, fields, &body, scan).map_err(|bad| ApiError::from(&bad))?;
    }
    let (identity, named_by) = identity(operation, header, &mut scanned);
    let facts = Arc::new(RequestFacts {
        body_bytes: body.len() as u64,
        text_bytes: scanned.prompt.text_bytes,
        token_ids: scanned.prompt.tokens,
        images: u32::try_from(scanned.prompt.images).unwrap_or(u32::MAX),
        output_limit: scanned.output_limit,
        choices: choices(operation, &scanned),
        fingerprint: fingerprint(&identity, priority, &body),
        retry: retry(fields),
        priority,
        start_within,
        identity,
    });
    let renamed = (scanned.model != deployment.model)
        .then(|| splice_model(&body, &scanned, &deployment.model))
        .flatten();
    let (model, stream) = (scanned.model.into_owned(), scanned.stream);
    let body = renamed.map_or_else(|| RequestBody::from(body), |spliced| RequestBody::new(spliced.pieces));
    Ok(Identified { operation, deployment, facts, body, model, named_by, stream })
}

/// The scan of a body: of a form where it is one, else by `json`.
fn scan_any<'a>(
    operation: Operation,
    fields: &Fields,
    body: &'a [u8],
    json: fn(Operation, &'a [u8]) -> Result<Scan<'a>, BadBody>,
) -> Result<Scan<'a>, BadBody> {
    if operation.body() == BodyKind::Json {
        return json(operation, body);
    }
    let content_type = fields.get(Name::ContentType).and_then(text).unwrap_or("");
    let is_form =
        content_type.trim_start().get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/"));
    if is_form || operation.body() == BodyKind::Multipart {
        return multipart::scan(content_type, body);
    }
    json(operation, body)
}

/// The header that names the conversation: its place among those of the deployment, and the name. The first that is there
/// counts, and names none where it is empty.
fn conversation_header<'a>(deployment: &Deployment, fields: &'a Fields) -> Option<(usize, &'a [u8])> {
    let names = deployment.conversation_headers.iter().enumerate();
    let header = names.filter_map(|(at, name)| Some((at, fields.named(name.as_str())?))).next();
    header.filter(|(_, value)| !value.is_empty())
}

/// A header names the conversation, else the body does (R1). Embeddings and their like have none.
fn identity(
    operation: Operation,
    header: Option<(usize, &[u8])>,
    scanned: &mut Scan<'_>,
) -> (Identity, Option<NamedBy>) {
    match header {
        _ if operation.prompt_shape() == PromptShape::Plain => (Identity::None, None),
        Some((at, value)) => (Identity::Named(named(value)), Some(NamedBy::Header(at))),
        None => (std::mem::take(&mut scanned.identity), scanned.named_by.map(NamedBy::Body)),
    }
}

/// Answers that the request asks for; none where no text is generated.
fn choices(operation: Operation, scanned: &Scan<'_>) -> u32 {
    if operation.generates() { u32::try_from(scanned.choices.clamp(1, CHOICES_MAX)).unwrap_or(1) } else { 0 }
}

/// OpenAI's SDKs tell how often they have tried before (Q2).
fn retry(fields: &Fields) -> Option<bool> {
    let count = text(fields.get(Name::RetryCount)?)?;
    Some(count.trim().parse::<u32>().ok()? > 0)
}

/// The same when the same client asks the same again, as urgently (Q2).
fn fingerprint(identity: &Identity, priority: Priority, body: &[u8]) -> u64 {
    let asked = match identity {
        Identity::Named(key) => key.0,
        Identity::Prefix { chain, .. } => chain.last().map_or_else(|| XxHash3_64::oneshot(body), |key| key.0),
        Identity::None => XxHash3_64::oneshot(body),
    };
    asked ^ (u64::from(priority as u8) << 62)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use tidegate_gateway_core::config::Limits;
    use tidegate_shared::id::DeploymentName;

    use super::*;
    use crate::clock::Clock;
    use crate::pool::Pool;
    use crate::telemetry::meter::DeploymentMeter;

    fn deployment(model: &str, headers: &[&'static str]) -> Arc<Deployment> {
        let name = DeploymentName::new(model);
        Arc::new(Deployment {
            pool: Pool::new(name.clone(), Limits::default(), false, Clock::start()),
            name,
            aliases: Vec::new(),
            model: model.to_owned(),
            conversation_headers: headers.iter().map(|name| HeaderName::from_static(name)).collect(),
            meter: DeploymentMeter::new(model),
        })
    }

    #[test]
    fn a_body_that_is_compressed_is_refused_and_one_that_is_not_is_read_however_that_is_said() {
        let directory = Directory::new(vec![deployment("a", &[])]);
        let told = |codings: &[&str]| {
            let mut fields = Fields::default();
            codings.iter().for_each(|coding| fields.add(b"content-encoding", coding.as_bytes()));
            let body = r#"{"model":"a","messages":[{"role":"user","content":"hi"}]}"#;
            identify(Operation::ChatCompletions, &fields, body.into(), &directory).map(drop)
        };
        for plain in
            [&[][..], &["identity"], &["Identity"], &[""], &["identity, identity"], &["identity", ""]]
        {
            told(plain).expect("it is read as it is");
        }
        for coded in [&["gzip"][..], &["identity", "gzip"], &["identity, gzip"], &["gzip,"], &["", " gzip "]]
        {
            let refused = told(coded).expect_err("compressed");
            assert_eq!(refused.status, 415, "{coded:?}");
            assert!(
                refused.error.message.contains("content-encoding is `gzip`"),
                "{}",
                refused.error.message
            );
        }
    }

    #[test]
    fn r1_the_first_header_of_the_deployment_names_the_conversation_if_it_is_not_empty_else_the_body_does() {
        let directory =
            Directory::new(vec![deployment("a", &["x-one", "x-two"]), deployment("b", &["x-two"])]);
        let told = |model: &str, headers: &[(&'static str, &str)]| {
            let mut fields = Fields::default();
            headers.iter().for_each(|(name, value)| fields.add(name.as_bytes(), value.as_bytes()));
            let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
            identify(Operation::ChatCompletions, &fields, body.into(), &directory).expect("a good request")
        };
        let named_by = |model, headers: &[_]| {
            let known = told(model, headers);
            let is_prefix =
                matches!(&known.facts.identity, Identity::Prefix { chain, .. } if chain.len() == 1);
            assert_eq!(is_prefix, known.named_by.is_none(), "{model}: {headers:?}");
            known.named_by
        };
        assert_eq!(named_by("a", &[]), None);
        assert_eq!(named_by("a", &[("x-one", "1"), ("x-two", "2")]), Some(NamedBy::Header(0)));
        assert_eq!(named_by("a", &[("x-two", "2")]), Some(NamedBy::Header(1)));
        assert_eq!(named_by("a", &[("x-one", ""), ("x-two", "2")]), None);
        assert_eq!(named_by("b", &[("x-one", "1")]), None, "it is the other deployment's");
        assert_eq!(named_by("b", &[("x-one", "1"), ("x-two", "2")]), Some(NamedBy::Header(0)));
        let alike = told("b", &[("x-one", "1")]).facts.identity == told("b", &[]).facts.identity;
        assert!(alike, "a header that names nothing changes nothing");
    }

    #[test]
    fn q2_a_client_that_counts_its_tries_is_believed_and_nonsense_is_no_count() {
        let told = |count: &'static str| {
            let mut fields = Fields::default();
            fields.set(Name::RetryCount, count);
            retry(&fields)
        };
        assert_eq!([told("0"), told("1"), told(" 2 ")], [Some(false), Some(true), Some(true)]);
        assert_eq!([told(""), told("-1"), told("many"), retry(&Fields::default())], [None; 4]);
    }
}
