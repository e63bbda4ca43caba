//! Keeps the tree tidy: who may import whom, the shape of files, the places where a name may be written.
//!
//! Reads sources and manifests as text, never compiles them; each rule has its exceptions beside it, with the reason.

#[cfg(test)]
mod imports;
#[cfg(test)]
mod names;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod shape;
#[cfg(test)]
mod source;
#[cfg(test)]
mod tree;
