use super::*;
use proptest::prelude::*;

fn screen(columns: u16, rows: u16) -> Screen {
    Screen::new(Size { columns, rows })
}

fn feed(screen: &mut Screen, bytes: &[u8]) -> String {
    let answers = bytes.chunks(PIECE).flat_map(|piece| screen.feed(piece)).collect::<Vec<_>>();
    String::from_utf8(answers).unwrap()
}

/// What can be told of a screen from outside: a picture of it with its looks, its modes, and what it would restore.
fn picture(screen: &Screen) -> (Frame, TermMode, String) {
    let known = TermMode::all() - TermMode::URGENCY_HINTS - TermMode::ALTERNATE_SCROLL;
    (screen.frame(), *screen.term.mode() & known, screen.text())
}

#[track_caller]
fn check_restores(bytes: &[u8]) {
    let mut original = screen(20, 6);
    feed(&mut original, bytes);
    check_same(&mut original, bytes);
}

#[track_caller]
fn check_same(original: &mut Screen, bytes: &[u8]) {
    let before = picture(original);
    let restore = original.restore();
    assert_eq!(picture(original), before, "restoring changed the original: {}", bytes.escape_ascii());
    // Onto a terminal that shows something else.
    let mut copy = Screen::new(original.size());
    feed(&mut copy, b"\x1b[?1049h\x1b[?1000;2004;25lother\x1b[31m\x1b[2;3r\x1b[?6h\x1b(0");
    feed(&mut copy, &restore);
    assert_eq!(picture(&copy), before, "{} by {}", bytes.escape_ascii(), restore.escape_ascii());
    // And what follows does the same to both: cursor, pen, region, character set.
    for next in [&b"xy\x1b[7mq\n\n\n\n\n\n\nend"[..], b"\x1b[?1049l back \x1b8z"] {
        feed(original, next);
        feed(&mut copy, next);
        assert_eq!(copy.text(), original.text(), "{} then {}", bytes.escape_ascii(), next.escape_ascii());
    }
}

#[test]
fn text_looks_cursor_and_modes_are_restored() {
    check_restores(b"");
    check_restores(b"hello\r\nworld\x1b[1;31m!\x1b[44m bg \x1b[0m");
    check_restores(b"\x1b[38;5;200;48;2;1;2;3;4:3;58;5;9mx\x1b[m \x1b[2;3;7;8;9mall");
    check_restores(b"\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?1h\x1b=\x1b[?25l\x1b[5 q");
    check_restores(b"\x1b[>5u\x1b[?1004h\x1b[?7l");
    check_restores(b"\x1b]8;id=1;http://x/\x07link\x1b]8;;\x07 no link");
}

#[test]
fn lines_that_were_wrapped_stay_one_line() {
    check_restores(b"a line that is longer than twenty columns");
    check_restores("twenty columns and 漢字漢字漢字漢字漢字".as_bytes());
    // The wide character that made the gap is gone, another of other looks has come into its place.
    check_restores("\x1b[2;3H漢\x1b[1;1H\x1b[31mnineteen columns ..漢\x1b[2;1H\x1b[2P".as_bytes());
    let mut original = screen(20, 6);
    feed(&mut original, b"a line that is longer than twenty columns");
    let restore = original.restore();
    let mut copy = screen(20, 6);
    feed(&mut copy, &restore);
    copy.resize(Size { columns: 60, rows: 6 });
    assert_eq!(copy.text(), "a line that is longer than twenty columns");
}

#[test]
fn a_cursor_behind_the_last_column_is_restored_there() {
    check_restores(b"exactly twenty colum");
    check_restores("exactly eighteen cc字".as_bytes());
}

#[test]
fn a_full_screen_program_is_restored_with_what_lies_behind_it() {
    check_restores(b"shell$ vi\r\n\x1b[?1049h\x1b[2;5r\x1b[Htop\x1b[3;3Hmiddle\x1b[32m");
    check_restores(b"\x1b[?1049h\x1b[2J\x1b[?1000h\x1b[?25lmenu");
    // Entered in colour, with an empty line that has none.
    check_restores(b"\x1b[100m\x1b[?1049h\x1b8\x1b[L");
}

#[test]
fn regions_and_character_sets_are_restored() {
    check_restores(b"\x1b[2;4r\x1b[3;1Hin it");
    check_restores(b"\x1b[2;4r\x1b[?6h\x1b[2;2Hin it");
    // Above it and below it.
    check_restores(b"\x1b[?6h\x1b[2;4r\x1b8");
    check_restores(b"\x1b[5;2H\x1b7\x1b[?6h\x1b[2;4r\x1b8\x1b[31m\n");
    check_restores(b"\x1b(0lqqk");
    check_restores(b"\x1b)0\x0elqqk");
    check_restores(b"a\x1b[2;3H\x1b[31m\x1b7\x1b[m\x1b[4;4Hb");
}

#[test]
fn questions_are_answered() {
    let mut screen = screen(80, 24);
    assert_eq!(feed(&mut screen, b"\x1b[5n"), "\x1b[0n");
    assert_eq!(feed(&mut screen, b"ab\x1b[6n"), "\x1b[1;3R");
    assert_eq!(feed(&mut screen, b"\x1b[c"), "\x1b[?6c");
    assert!(feed(&mut screen, b"\x1b[>c").starts_with("\x1b[>0;"));
    assert_eq!(feed(&mut screen, b"\x1b[?2004$p"), "\x1b[?2004;2$y");
    assert_eq!(feed(&mut screen, b"\x1b]11;?\x07"), "\x1b]11;rgb:0000/0000/0000\x07");
    assert_eq!(feed(&mut screen, b"\x1b]10;?\x1b\\"), "\x1b]10;rgb:d8d8/d8d8/d8d8\x1b\\");
    assert_eq!(feed(&mut screen, b"\x1b[?u"), "\x1b[?0u");
    assert_eq!(feed(&mut screen, b"\x1b[18t"), "\x1b[8;24;80t");
    assert_eq!(feed(&mut screen, b"\x1b[14t"), "\x1b[4;384;640t");
}

#[test]
fn whoever_asks_may_say_what_it_does_and_hears_so_before_the_next_answer() {
    for question in
        [&b"\x1b]7501;?\x07\x1b[c"[..], b"\x1b]7501;?\x1b\\\x1b[c", b"\x1b]7501;\x1b]7501;?\x1b]7501;?\x07\x1b[c"]
    {
        assert_eq!(feed(&mut screen(80, 24), question), "\x1b]7501;?\x1b\\\x1b[?6c");
        let mut slowly = screen(80, 24);
        let answers: Vec<u8> = question.iter().flat_map(|byte| slowly.feed(&[*byte])).collect();
        assert_eq!(String::from_utf8(answers).unwrap(), "\x1b]7501;?\x1b\\\x1b[?6c");
    }
    assert_eq!(feed(&mut screen(80, 24), b"\x1b]7501;state=idle\x07]7501;?\x07\x1b]7501;?x\x07"), "");
}

#[test]
fn those_who_look_on_are_not_asked() {
    let quiet = |bytes: &[u8]| {
        let (mut quiet, mut out) = (Quiet::default(), Vec::new());
        for byte in bytes {
            quiet.pass(&[*byte], &mut out);
        }
        out
    };
    for question in [
        &b"\x1b[5n"[..],
        b"\x1b[6n",
        b"\x1b[?6n",
        b"\x1b[c",
        b"\x1b[>0c",
        b"\x1b[=c",
        b"\x1b[?2026$p",
        b"\x1b[4$p",
        b"\x1b]10;?\x07",
        b"\x1b]4;1;?\x1b\\",
        b"\x1b]52;c;?\x07",
        b"\x1b[?u",
        b"\x1b[18t",
        b"\x1b[14t",
        b"\x1b[>0q",
        b"\x1bP$qm\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1bZ",
    ] {
        assert_eq!(quiet(&[b"a", question, b"b"].concat()), b"ab", "{}", question.escape_ascii());
    }
    for other in [
        &b"\x1b[31mx\x1b[0m"[..],
        b"\x1b[2 q",
        b"\x1b]2;title\x07",
        b"\x1b]11;#000000\x07",
        b"\x1b[u",
        b"\x1b[>1u",
        b"\x1b[8;24;80t",
        b"\x1b[!p",
        b"\x1b[?25h",
        b"\x1b(0",
        b"\x1b[3;4r",
        b"\x1b[2S",
        b"\x1bPq#0;sixel\x1b\\",
    ] {
        assert_eq!(quiet(other), other, "{}", other.escape_ascii());
    }
    let long = [b"\x1b]52;c;".as_slice(), &[b'A'; 5000], b"\x07after"].concat();
    assert_eq!(quiet(&long), long);
    let long = [b"\x1bPq".as_slice(), &[b'A'; 5000], b"\x1b\\after"].concat();
    assert_eq!(quiet(&long), long);
}

#[test]
fn sizes_are_kept_within_their_limits() {
    for (columns, rows, want) in [(0, 0, (10, 4)), (1, 500, (10, 200)), (9999, 24, (500, 24)), (80, 24, (80, 24))] {
        let size = screen(columns, rows).size();
        assert_eq!((size.columns, size.rows), want);
    }
}

#[test]
fn another_picture_is_told_by_what_differs() {
    let mut screen = screen(20, 6);
    feed(&mut screen, b"one\r\ntwo");
    let before = screen.frame();
    assert_eq!(before.since(Some(&before)), b"");
    feed(&mut screen, b"!");
    let change = screen.frame().since(Some(&before));
    assert!(!change.windows(3).any(|part| part == b"one"), "{}", change.escape_ascii());
    let mut large = Screen::new(Size { columns: 70, rows: 20 });
    feed(&mut large, &before.since(None));
    feed(&mut large, &change);
    assert_eq!(large.text(), "one\ntwo!");
}

/// Pieces of what programs write, and of what they never should.
fn sequence() -> impl Strategy<Value = Vec<u8>> {
    let number = || 0_u32..30;
    let csi = (prop::sample::select(b"ABCDEFGHJKLMPSTX@abdefghlmnr`su".to_vec()), number(), number(), any::<bool>())
        .prop_map(|(last, a, b, two)| {
            let body = if two { format!("\x1b[{a};{b}") } else { format!("\x1b[{a}") };
            [body.as_bytes(), &[last]].concat()
        });
    let looks = (0_u32..110, 0_u32..256).prop_map(|(a, b)| format!("\x1b[{a}m\x1b[38;5;{b}m").into_bytes());
    let modes = (prop::sample::select(vec![1_u32, 6, 7, 25, 1000, 1002, 1003, 1004, 1006, 1049, 2004]), any::<bool>())
        .prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes());
    let text = "[a-zé漢\u{301} ]{1,30}".prop_map(String::into_bytes);
    let control = prop::sample::select(vec![
        &b"\r\n"[..],
        b"\n",
        b"\t",
        b"\x08",
        b"\x1b7",
        b"\x1b8",
        b"\x1bM",
        b"\x1bD",
        b"\x1bE",
        b"\x1b(0",
        b"\x1b(B",
    ])
    .prop_map(<[u8]>::to_vec);
    prop_oneof![4 => text, 2 => csi, 2 => looks, 1 => modes, 2 => control]
}

proptest! {
    #[test]
    fn whatever_was_written_the_picture_is_restored(
        parts in prop::collection::vec(sequence(), 0..40), columns in 10_u16..40, rows in 4_u16..12,
    ) {
        let bytes = parts.concat();
        let mut original = screen(columns, rows);
        feed(&mut original, &bytes);
        let before = picture(&original);
        let restore = original.restore();
        prop_assert_eq!(picture(&original), before.clone());
        let mut copy = screen(columns, rows);
        feed(&mut copy, &restore);
        prop_assert_eq!(picture(&copy), before, "{}", bytes.escape_ascii());
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn garbage_and_any_size_are_survived(
        parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), any::<u16>(), any::<u16>()), 0..6),
    ) {
        let mut screen = screen(80, 24);
        for (bytes, columns, rows) in parts {
            feed(&mut screen, &bytes);
            screen.resize(Size { columns, rows });
            let _ = screen.restore();
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn nothing_but_questions_is_left_out_however_it_is_cut(
        parts in prop::collection::vec(sequence(), 0..20), cut in 1_usize..9,
    ) {
        let bytes = parts.concat();
        let (mut quiet, mut out) = (Quiet::default(), Vec::new());
        for piece in bytes.chunks(cut) {
            quiet.pass(piece, &mut out);
        }
        let questions = bytes.windows(1).filter(|byte| byte == b"n").count();
        if questions == 0 {
            prop_assert_eq!(out, bytes);
        }
    }
}
