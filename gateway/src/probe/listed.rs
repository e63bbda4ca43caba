//! What an engine's list of models (`/v1/models`) says of the one that is wanted. Reads bytes and asks nobody.

use serde::Deserialize;
use serde_json::Value;

/// Models that are told of.
const TOLD: usize = 5;
/// Characters of each that are told.
const LONGEST: usize = 80;

/// Whether the wanted model is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// It is, by its name or as another name of a model that is.
    Yes,
    /// The list is empty: nothing is loaded yet.
    Nothing,
    /// Others are: a text for people, without control characters.
    Others(String),
}

#[derive(Debug, Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Debug, Deserialize)]
struct Model {
    id: String,
    /// Further names, where an engine tells them; whatever else stands there is none of our business.
    #[serde(default)]
    aliases: Value,
}

/// Looks for `wanted` in `body`.
///
/// # Errors
/// A sentence, where `body` is no list of models.
pub(super) fn look(body: &[u8], wanted: &str) -> Result<Listed, String> {
    let models: Models =
        serde_json::from_slice(body).map_err(|error| format!("/v1/models is no list of models: {error}"))?;
    let known = |model: &Model| {
        let aliases = model.aliases.as_array().map(Vec::as_slice).unwrap_or_default();
        model.id == wanted || aliases.iter().any(|alias| alias.as_str() == Some(wanted))
    };
    if models.data.iter().any(known) {
        return Ok(Listed::Yes);
    }
    if models.data.is_empty() {
        return Ok(Listed::Nothing);
    }
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let name = |model: &Model| format!("`{}`", model.id.chars().take(LONGEST).map(clean).collect::<String>());
    let names: Vec<String> = models.data.iter().take(TOLD).map(name).collect();
    let more = models.data.len().saturating_sub(TOLD);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Ok(Listed::Others(format!("{}{more}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_028_a_model_is_listed_by_its_name_or_as_another_name_of_one_that_is() {
        let yes = |body: &str| assert_eq!(look(body.as_bytes(), "chat"), Ok(Listed::Yes), "{body}");
        yes(r#"{"object":"list","data":[{"id":"base"},{"id":"chat","object":"model"}]}"#);
        yes(r#"{"data":[{"id":"chat.gguf","aliases":["small","chat"]}]}"#);
        yes(r#"{"data":[{"id":"chat","aliases":"none"}]}"#);
        assert_eq!(look(br#"{"data":[]}"#, "chat"), Ok(Listed::Nothing));
        let others = |body: &str| match look(body.as_bytes(), "chat") {
            Ok(Listed::Others(names)) => names,
            other => panic!("{body}: {other:?}"),
        };
        assert_eq!(others(r#"{"data":[{"id":"chat-2"},{"id":"a\u001b\nb"}]}"#), "`chat-2`, `a  b`");
        let many: Vec<String> = (0..9).map(|n| format!(r#"{{"id":"m{n}"}}"#)).collect();
        let many = format!(r#"{{"data":[{}]}}"#, many.join(","));
        assert_eq!(others(&many), "`m0`, `m1`, `m2`, `m3`, `m4` and 4 more");
        assert!(
            look(b"<html>", "chat").is_err_and(|why| why.starts_with("/v1/models is no list of models: "))
        );
    }
}
