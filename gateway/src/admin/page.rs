//! The status page for people: one file that needs nothing else, and the rules that a browser keeps for it. The page
//! asks `/status` each second and puts what it gets in as text. Decides nothing about what is shown.

use base64::Engine as _;
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// The page, as it is sent.
const HTML: &str = include_str!("page.html");

/// See the module.
#[derive(Debug)]
pub(super) struct Page {
    policy: Option<HeaderValue>,
}

impl Page {
    pub(super) fn new() -> Self {
        Self { policy: HeaderValue::try_from(policy(HTML)).ok() }
    }

    pub(super) fn html(&self) -> Bytes {
        Bytes::from_static(HTML.as_bytes())
    }

    /// Adds what keeps a browser from running or loading anything but the page's own.
    pub(super) fn protect(&self, headers: &mut HeaderMap) {
        headers.extend(self.policy.clone().map(|policy| (CONTENT_SECURITY_POLICY, policy)));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// Allows exactly the script and the style of `html`, by hash, and requests to its own origin. No text can become
/// markup: scripts may not even try (`require-trusted-types-for`).
fn policy(html: &str) -> String {
    let (script, style) = (allowed(html, "script"), allowed(html, "style"));
    format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
}

/// The hash of what stands between `<tag>` and `</tag>`, or `'none'`.
fn allowed(html: &str, tag: &str) -> String {
    let inside =
        html.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
    let Some((inside, _)) = inside else { return "'none'".to_owned() };
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(inside));
    format!("'sha256-{hash}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_this_script_and_this_style_and_nothing_else() {
        let html = "<style>a{}</style><script>alert(1)</script>";
        // Made with: printf 'alert(1)' | openssl dgst -sha256 -binary | base64
        assert_eq!(allowed(html, "script"), "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='");
        assert_eq!(allowed(html, "other"), "'none'");
        let policy = policy(HTML);
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && HeaderValue::try_from(policy).is_ok());
    }

    #[test]
    fn the_page_needs_nothing_else() {
        assert_eq!(HTML.matches("<script").count(), 1);
        assert_eq!(HTML.matches("<style").count(), 1);
        let hosts = HTML.matches("//www.w3.org/2000/svg").count();
        assert_eq!(HTML.matches("http:").count(), hosts, "names of a format only");
        for outside in ["https:", "src=", "@import", "url(", " onclick", " onload", " style=\""] {
            assert!(!HTML.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_others_say_is_never_markup() {
        for way in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "DOMParser", "Function("]
        {
            assert!(!HTML.contains(way), "{way}");
        }
    }

    #[test]
    fn e1_money_is_written_by_the_gateway_and_nothing_is_found_by_its_words() {
        for own in ["$$", "price_cap", "dollars", ".includes(status."] {
            assert!(!HTML.contains(own), "{own}");
        }
    }

    #[test]
    fn it_is_small() {
        assert!(HTML.len() < 32 << 10);
    }
}
