//! A peer may send anything, cut anywhere: no panic, the same frames however they are cut, and what can be decoded says
//! the same after it was encoded again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minicbor::{Decode, Encode};
use stead_model::frame::{self, Chunk, Decoder, Frame, FrameError, Kind};
use stead_model::proto::{Event, Fault, Reply, Request};

// The first byte says how many cuts, the next ones how long each piece is; the rest is the wire.
fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else { return };
    let Some((cuts, wire)) = rest.split_at_checked(usize::from(count % 16)) else { return };
    let whole = frames(&[wire]);
    assert_eq!(whole, frames(&pieces(wire, cuts)), "the cuts changed what was read");
    for frame in &whole.0 {
        written_again(frame);
        match frame.kind {
            Kind::Request => same_again::<Request>(&frame.payload),
            Kind::Reply => same_again::<Reply>(&frame.payload),
            Kind::Event => same_again::<Event>(&frame.payload),
            Kind::Fault => same_again::<Fault>(&frame.payload),
            Kind::Data => {
                if let Ok(chunk) = Chunk::decode(&frame.payload) {
                    assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk));
                }
            }
        }
    }
});

fn pieces<'a>(mut wire: &'a [u8], cuts: &[u8]) -> Vec<&'a [u8]> {
    let mut out = Vec::new();
    for cut in cuts {
        let (piece, rest) = wire.split_at(usize::from(*cut).min(wire.len()));
        out.push(piece);
        wire = rest;
    }
    out.push(wire);
    out
}

/// What comes out of the pieces, and the error that ended it.
fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, Option<FrameError>) {
    let (mut decoder, mut out) = (Decoder::default(), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => out.push(frame),
                Ok(None) => break,
                Err(error) => return (out, Some(error)),
            }
        }
    }
    (out, None)
}

fn written_again(frame: &Frame) {
    let mut wire = Vec::new();
    frame::write(&mut wire, frame.kind, frame.request, &frame.payload);
    assert_eq!(frames(&[&wire]), (vec![frame.clone()], None));
}

fn same_again<T>(payload: &[u8])
where
    T: for<'a> Decode<'a, ()> + Encode<()> + PartialEq + std::fmt::Debug,
{
    if let Ok(message) = minicbor::decode::<T>(payload) {
        let again = minicbor::to_vec(&message).expect("encoding into a vector can't fail");
        assert_eq!(minicbor::decode::<T>(&again).expect("what we encode we can decode"), message);
    }
}
