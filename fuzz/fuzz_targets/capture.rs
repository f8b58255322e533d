//! A shell's dump of itself is written by whatever the user made of that shell. Reading it, comparing it with another and
//! making a script of the difference must not panic, and a state must survive being stored.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_model::shell::Dialect;
use stead_model::state::restore::{Extent, script};
use stead_model::state::{Capture, ShellState};

const OURS: &[u8] = b"\\builtin . '/r/x'";

// The first byte chooses the dialect and where the rest is cut in two: a lived-in shell and a fresh one.
fuzz_target!(|data: &[u8]| {
    let Some((&choice, dumps)) = data.split_first() else { return };
    let dialect = if choice & 1 == 0 { Dialect::Bash } else { Dialect::Posix };
    let cut = dumps.windows(4).position(|end| end == b"end\0").map_or(dumps.len(), |at| at + 4);
    let (one, other) = dumps.split_at(cut);
    let Ok(lived_in) = Capture::parse(dialect, one, OURS) else { return };
    assert_eq!(Capture::parse(dialect, one, OURS).as_ref(), Ok(&lived_in), "the same dump says the same");
    let fresh = Capture::parse(dialect, other, OURS).unwrap_or_default();
    for state in [lived_in.delta(&fresh), fresh.delta(&lived_in)] {
        restored(dialect, &state);
    }
    let lived_in = lived_in.with_debug_trap(other).unwrap_or_default();
    restored(dialect, &lived_in.delta(&Capture::default()));
});

fn restored(dialect: Dialect, state: &ShellState) {
    for extent in [Extent::All, Extent::WithoutCode] {
        let _ = script(dialect, state, extent, b"/");
    }
    let _ = (state.env_delta(), state.context());
    let stored = minicbor::to_vec(state).expect("encoding into a vector can't fail");
    assert_eq!(minicbor::decode::<ShellState>(&stored).as_ref().expect("what we store we can read"), state);
}
