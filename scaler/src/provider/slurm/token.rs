//! The token that a JWT-protected slurmrestd wants: read from its file for each request, so that a renewed one is used
//! at once, and looked into far enough to say whose it is and that it has expired.
//!
//! Never verifies a token, which is Slurm's to do, and never shows one.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// Largest file, in bytes.
const LARGEST: u64 = 64 * 1024;

/// A token as the file has it now.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// The text for the header.
    pub(super) text: String,
    claims: Claims,
}

/// What a token says of itself; nothing where it is of another kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Claims {
    /// When it expires, in seconds since 1970.
    exp: Option<u64>,
    /// Whose it is, in Slurm's own tokens.
    sun: Option<String>,
    /// The same, in those of others.
    username: Option<String>,
}

impl Token {
    /// Reads the file: the bare token, or the line `SLURM_JWT=…` as `scontrol token` prints it. The error is for people.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let failed = |why: String| format!("cannot read the token file {}: {why}", path.display());
        let size = fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if size > LARGEST {
            return Err(failed(format!("{size} bytes are no token")));
        }
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        Self::of(&text).ok_or_else(|| failed("it holds no token".to_owned()))
    }

    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix("SLURM_JWT=").unwrap_or(text);
        let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        visible.then(|| Self { text: text.to_owned(), claims: claims(text).unwrap_or_default() })
    }

    /// Whose it is, if it says so.
    pub(super) fn user(&self) -> Option<&str> {
        self.claims.sun.as_deref().or(self.claims.username.as_deref())
    }

    /// How many seconds ago it expired, at `now` in seconds since 1970; `None` if it has not, or does not say.
    pub(super) fn expired(&self, now: u64) -> Option<u64> {
        now.checked_sub(self.claims.exp?)
    }
}

fn claims(token: &str) -> Option<Claims> {
    let claims = token.split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `scontrol token username=nobody lifespan=1000` printed it, its signature replaced.
    const PRINTED: &str = "SLURM_JWT=eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE3OTYwMTk3MjcsImlhdCI6MTc5NjAxODcyNywic3VuIjoicm9vdCJ9.c2lnbmF0dXJl\n";

    #[test]
    fn a_token_says_whose_it_is_and_when_it_expires() {
        let token = Token::of(PRINTED).unwrap();
        assert!(token.text.starts_with("eyJ") && token.text.ends_with("c2lnbmF0dXJl"));
        assert_eq!(token.user(), Some("root"));
        assert_eq!(token.expired(1_796_019_726), None);
        assert_eq!(token.expired(1_796_019_737), Some(10));
    }

    #[test]
    fn a_token_of_another_kind_passes_as_it_is() {
        for text in ["opaque", "a.b.c", "a.!!!.c"] {
            let token = Token::of(text).unwrap();
            assert_eq!((token.text.as_str(), token.user(), token.expired(u64::MAX)), (text, None, None));
        }
        for text in ["", " \n", "two words", "SLURM_JWT="] {
            assert!(Token::of(text).is_none(), "{text:?}");
        }
        let error = Token::read(Path::new("/nonexistent/token")).err().unwrap();
        assert!(error.starts_with("cannot read the token file /nonexistent/token: No such file"), "{error}");
    }
}
