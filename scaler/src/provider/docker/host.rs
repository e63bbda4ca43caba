//! Where a Docker daemon listens.
//!
//! Never connects.

use std::fmt;

/// The address of a Docker daemon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DockerHost {
    /// A socket of this machine, by its absolute path.
    Unix(String),
    /// `HOST:PORT`, in the clear.
    Tcp(String),
}

impl DockerHost {
    /// Where it listens unless somebody says otherwise.
    pub const USUAL: &str = "unix:///var/run/docker.sock";

    /// Reads `unix:///path` or `tcp://host:port`, as in `DOCKER_HOST`. The error is the rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const RULE: &str = "must be unix:///PATH or tcp://HOST:PORT (in the clear; neither TLS nor ssh)";
        if let Some(path) = text.strip_prefix("unix://") {
            let good = path.starts_with('/') && !path.contains('\0');
            return good.then(|| Self::Unix(path.to_owned())).ok_or(RULE);
        }
        let address = text.strip_prefix("tcp://").map(|rest| rest.trim_end_matches('/')).ok_or(RULE)?;
        let (host, port) = address.rsplit_once(':').ok_or(RULE)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let named = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
        let good = !inner.is_empty() && inner.chars().all(named) && (inner == host) != inner.contains(':');
        match port.parse::<u16>() {
            Ok(1..) if good => Ok(Self::Tcp(address.to_owned())),
            _ => Err(RULE),
        }
    }

    /// Whether it is a socket of this machine.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }
}

impl fmt::Display for DockerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_sockets_or_plain_addresses() {
        for good in [
            "unix:///run/user/1000/docker.sock",
            "tcp://10.0.0.7:2375",
            "tcp://[::1]:2375",
            DockerHost::USUAL,
        ] {
            assert_eq!(DockerHost::parse(good).map(|host| host.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "docker.sock",
            "unix://docker.sock",
            "tcp://10.0.0.7",
            "tcp://:2375",
            "tcp://h:0",
            "tcp://h:99999",
            "ssh://h",
            "https://h:2376",
            "tcp://u@h:1",
            "tcp://::1:80",
            "tcp://[h]:80",
        ] {
            assert!(DockerHost::parse(bad).is_err(), "{bad}");
        }
    }
}
