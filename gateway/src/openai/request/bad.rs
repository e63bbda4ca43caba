//! Why a request body cannot be routed (H4, status 400). Never holds a piece of a prompt.

use std::fmt;

use thiserror::Error;

use super::json::MAX_DEPTH;

/// A body that cannot be routed: where, what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadBody {
    /// Not JSON, or cut short.
    #[error("the body is not valid JSON: at byte {at}, expected {expected}, found {}", Found(*.found))]
    Syntax {
        /// Offset in the body.
        at: usize,
        /// What JSON allows there.
        expected: &'static str,
        /// What is there; `None` at the end of the body.
        found: Option<u8>,
    },
    /// Arrays and objects are nested deeper than [`MAX_DEPTH`].
    #[error("the body is nested too deeply: at byte {at} deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Offset in the body.
        at: usize,
    },
    /// A field that routing needs is not there.
    #[error("`{param}` is missing; it is required")]
    Missing {
        /// The field.
        param: &'static str,
    },
    /// A field that routing needs has another type or value than the API allows.
    #[error("`{param}` at byte {at} must be {expected}")]
    WrongType {
        /// The field.
        param: &'static str,
        /// Offset of its value.
        at: usize,
        /// What the API allows.
        expected: &'static str,
    },
    /// A field that must be there once is there again. The engine might read the other one.
    #[error("`{param}` is there twice, again at byte {at}; it must be there once")]
    Duplicate {
        /// The field.
        param: &'static str,
        /// Offset of the second one.
        at: usize,
    },
    /// The body is not the `multipart/form-data` that it should be.
    #[error("the body is not valid multipart/form-data: expected {expected}")]
    Multipart {
        /// What is missing.
        expected: &'static str,
    },
}

impl BadBody {
    /// The `param` of the error object.
    pub const fn param(&self) -> Option<&'static str> {
        match self {
            Self::Syntax { .. } | Self::TooDeep { .. } | Self::Multipart { .. } => None,
            Self::Missing { param } | Self::WrongType { param, .. } | Self::Duplicate { param, .. } => {
                Some(param)
            }
        }
    }

    /// The `code` of the error object.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Syntax { .. } => "invalid_json",
            Self::TooDeep { .. } => "json_too_deep",
            Self::Missing { .. } => "missing_required_parameter",
            Self::WrongType { .. } => "invalid_type",
            Self::Duplicate { .. } => "duplicate_parameter",
            Self::Multipart { .. } => "invalid_multipart",
        }
    }
}

struct Found(Option<u8>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("the end of the body"),
            Some(byte) if byte.is_ascii_graphic() => write!(f, "`{}`", char::from(byte)),
            Some(byte) => write!(f, "byte 0x{byte:02x}"),
        }
    }
}
