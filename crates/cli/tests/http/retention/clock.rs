//! A clock that can be set, for a real server.

use crate::rig::Rig;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) struct Clock {
    place: TempDir,
    library: PathBuf,
}

impl Clock {
    /// Absent where the library is not.
    pub(crate) fn new() -> Option<Self> {
        let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64"];
        let libraries = places.iter().map(|place| Path::new(place).join("faketime/libfaketime.so.1"));
        let Some(library) = libraries.into_iter().find(|file| file.is_file()) else {
            println!("SKIPPED: `apt-get install faketime` gives what it needs");
            return None;
        };
        let clock = Self { place: tempfile::tempdir().unwrap(), library };
        clock.set("+0");
        Some(clock)
    }

    pub(crate) fn set(&self, offset: &str) {
        let file = self.place.path().join("clock");
        std::fs::write(file.with_extension("new"), offset).unwrap();
        std::fs::rename(file.with_extension("new"), file).unwrap();
    }

    pub(crate) fn rig(&self, config: &str) -> Rig {
        let file = self.place.path().join("clock");
        let variables = [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        Rig::with_all(config, &[], &variables)
    }

    /// The server dies, and its next life begins this much later than the first.
    pub(crate) fn restart(&self, rig: &mut Rig, offset: &str) {
        rig.kill();
        self.set(offset);
        rig.start();
    }
}
