//! The base URL of an engine or of the admin port: `http://host[:port][/prefix]`.
//!
//! Decides only which texts are one; resolves nothing and connects nowhere.

use std::fmt;

use http::Uri;
use http::uri::Authority;

/// A checked base URL. `Display` gives it back without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    authority: Authority,
    prefix: String,
}

/// What is allowed, as the rest of the sentence "must be".
const RULE: &str =
    "must be http://host, with a port and a path prefix if needed, such as http://127.0.0.1:9101";

impl BaseUrl {
    /// Reads a base URL.
    ///
    /// # Errors
    ///
    /// The rule that `text` breaks, as a sentence: another scheme than `http`, no host, a bad port, a user name, a
    /// query or a fragment.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http") => {}
            Some("https") => return Err("https is not supported yet; must be http://host[:port]"),
            Some(_) | None => return Err(RULE),
        }
        if text.contains(['?', '#']) {
            return Err("must end with the path: a query or a fragment cannot be part of a base URL");
        }
        let uri: Uri = text.parse().map_err(|_| RULE)?;
        let authority = uri.authority().cloned().ok_or(RULE)?;
        if authority.as_str().contains('@') {
            return Err("must not hold a user name or a password");
        }
        let rest = authority.as_str().strip_prefix(authority.host()).ok_or(RULE)?;
        let port_is_fine = rest.is_empty() || authority.port_u16().is_some_and(|port| port > 0);
        if authority.host().is_empty() || !port_is_fine {
            return Err(RULE);
        }
        // What people know as a base URL ends in /v1, which is part of the API's own paths here.
        let path = uri.path().trim_end_matches('/');
        Ok(Self { prefix: path.strip_suffix("/v1").unwrap_or(path).to_owned(), authority })
    }

    /// The host as a resolver wants it: a name or an address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port; 80 unless given.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(80)
    }

    /// Host and port as written: what the `Host` header says.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What stands before each path: empty, or `/…` without a trailing slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_are_taken_apart() {
        for (text, host, port, prefix, shown) in [
            ("http://127.0.0.1:9101", "127.0.0.1", 9101, "", "http://127.0.0.1:9101"),
            ("http://engine/", "engine", 80, "", "http://engine"),
            ("HTTP://engine:8000/v2/", "engine", 8000, "/v2", "http://engine:8000/v2"),
            ("http://[::1]:9101/a/b", "::1", 9101, "/a/b", "http://[::1]:9101/a/b"),
            ("http://[::1]", "::1", 80, "", "http://[::1]"),
        ] {
            let url = BaseUrl::parse(text).expect(text);
            assert_eq!((url.host(), url.port(), url.prefix()), (host, port, prefix), "{text}");
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn bad_urls_are_refused_with_the_rule() {
        for (text, part) in [
            ("https://engine", "https is not supported yet"),
            ("ftp://engine", "must be http://host"),
            ("127.0.0.1:9101", "must be http://host"),
            ("/v1", "must be http://host"),
            ("", "must be http://host"),
            ("http://", "must be http://host"),
            ("http://:80", "must be http://host"),
            ("http://engine:", "must be http://host"),
            ("http://engine:0", "must be http://host"),
            ("http://engine:65536", "must be http://host"),
            ("http://engine:x", "must be http://host"),
            ("http://en gine", "must be http://host"),
            ("http://me:secret@engine", "must not hold a user name"),
            ("http://engine/?a=b", "must end with the path"),
            ("http://engine/#top", "must end with the path"),
        ] {
            let rule = BaseUrl::parse(text).expect_err(text);
            assert!(rule.contains(part), "{text}: {rule}");
        }
    }
}
