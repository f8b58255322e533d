//! Any text may come as a command. Judging it must not panic, and a text that is harmless because all of it was
//! understood leaves what follows it to be judged for itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_model::effect::{Context, Effect, effect_of};

fuzz_target!(|data: &[u8]| {
    let plain = Context::default();
    if effect_of(data, &plain) == Effect::Unknown {
        return;
    }
    let hooked = Context { hooked: true, ..Context::default() };
    assert_eq!(effect_of(data, &hooked), Effect::Unknown, "a hook makes anything possible");
    let then = |next: &[u8]| effect_of(&[data, b"\n", next].concat(), &plain);
    assert_eq!(then(b"x=1"), Effect::Unknown, "an assignment behind it was not seen");
    assert_eq!(then(b"export x"), Effect::Unknown, "a builtin behind it was not seen");
    assert_eq!(then(b"cd /"), Effect::DirectoryOnly, "harmless twice is harmless");
});
