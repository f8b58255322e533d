//! Directories in and out as tar streams.

use crate::rig::{Rig, out, run, thread, wait_for};
use crate::scene::*;
use stead_server::Error;
use stead_server::files::{Bounds, Files, Unpacked};

on_each_provider! {
    a_directory_goes_out_and_comes_in_the_same,
    an_archive_is_joined_with_what_is_there_or_refused_whole,
    an_archive_that_is_cut_off_or_broken_leaves_nothing,
    what_an_archive_may_become_is_bounded,
    archives_of_the_common_tar_are_taken,
}

/// One entry as it is in an archive, lies included.
pub(super) fn entry(kind: u8, path: &[u8], target: &[u8], data: &[u8]) -> Vec<u8> {
    sized(kind, path, target, data, data.len())
}

pub(super) fn sized(kind: u8, path: &[u8], target: &[u8], data: &[u8], size: usize) -> Vec<u8> {
    let mut block = [0_u8; 512];
    block[..path.len().min(100)].copy_from_slice(&path[..path.len().min(100)]);
    block[100..108].copy_from_slice(b"0000644\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"14371573000\0");
    block[148..156].copy_from_slice(b"        ");
    block[156] = kind;
    block[157..157 + target.len()].copy_from_slice(target);
    block[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = block.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

pub(super) fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

pub(super) async fn unpack(files: &Files, path: &str, bytes: &[u8]) -> Result<Unpacked, Error> {
    unpack_within(files, path, bytes, Bounds::default()).await
}

async fn unpack_within(files: &Files, path: &str, bytes: &[u8], bounds: Bounds) -> Result<Unpacked, Error> {
    let mut unpacking = files.unpack(path, bounds).await?;
    for piece in bytes.chunks(7000) {
        unpacking.write(piece.to_vec().into()).await?;
    }
    unpacking.finish().await
}

async fn pack(files: &Files, path: &str) -> Result<Vec<u8>, Error> {
    let mut packed = files.pack(path).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = packed.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    Ok(bytes)
}

/// Everything below a workspace, and beside it what an archive could have left.
pub(super) async fn all(files: &Files) -> Vec<String> {
    let page = stead_server::files::Page { limit: 1000, after: None };
    let listed = files.list(".", 99, page).await.unwrap().items;
    listed.into_iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

async fn a_directory_goes_out_and_comes_in_the_same(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    let long = "x".repeat(120);
    let made = format!(
        "mkdir -p a/{long}/{long} a/empty; echo text >a/file; chmod 751 a/file; ln -s file a/link; ln -s /etc a/out; \
         head -c 3000000 /dev/urandom >a/{long}/{long}/{long}; : >a/nothing; mkfifo a/pipe; touch -d 2001-02-03 a/file"
    );
    assert_eq!(out(&sandbox, &made).await, "");
    let bytes = pack(&files, "a").await.unwrap();
    files.write("a.tar", bytes.clone()).await.unwrap();
    let names = "tar tf a.tar | sed 's/x\\{120\\}/X/g' | sort";
    assert_eq!(out(&sandbox, names).await, "X/\nX/X/\nX/X/X\nempty/\nfile\nlink\nnothing\nout\n");
    let error = unpack(&files, "b", &bytes).await.unwrap_err();
    assert_eq!(error.code(), "invalid_path", "it has a link to `/etc`");
    run(&sandbox, "rm a/out a/pipe").await;
    let bytes = pack(&files, "a").await.unwrap();
    let unpacked = unpack(&files, "new/b", &bytes).await.unwrap();
    assert_eq!(unpacked, Unpacked { files: 3, dirs: 3, links: 1, bytes: 3_000_005 });
    assert_eq!(
        out(&sandbox, "diff -r a new/b && stat -c '%a %Y' new/b/file && readlink new/b/link").await,
        "751 981158400\nfile\n"
    );
    // One file is an archive of one.
    let bytes = pack(&files, "a/file").await.unwrap();
    unpack(&files, "c", &bytes).await.unwrap();
    assert_eq!(files.read("c/file").await.unwrap(), b"text\n");
    assert_eq!(pack(&files, "none").await.unwrap_err().code(), "not_found");
}

async fn an_archive_is_joined_with_what_is_there_or_refused_whole(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let files = rig.stead.files(&thread("t")).await.unwrap();
    files.write("dir/old", b"old".to_vec()).await.unwrap();
    files.write("dir/both", b"old".to_vec()).await.unwrap();
    let new = archive(&[
        entry(b'5', b"./", b"", b""),
        entry(b'0', b"./dir/both", b"", b"new"),
        entry(b'0', b"./dir/more/new", b"", b"new"),
        entry(b'1', b"second", b"dir/both", b""),
    ]);
    unpack(&files, ".", &new).await.unwrap();
    for (path, text) in [("dir/old", "old"), ("dir/both", "new"), ("dir/more/new", "new"), ("second", "new")] {
        assert_eq!(files.read(path).await.unwrap(), text.as_bytes(), "{path}");
    }
    let before = all(&files).await;
    for clash in [entry(b'0', b"dir", b"", b"x"), entry(b'5', b"second", b"", b"")] {
        let bytes = archive(&[entry(b'0', b"a-first", b"", b"x"), clash]);
        assert_eq!(unpack(&files, ".", &bytes).await.unwrap_err().code(), "conflict");
    }
    assert_eq!(unpack(&files, "second", &new).await.unwrap_err().code(), "invalid_path", "into a file");
    assert_eq!(all(&files).await, before);
}

async fn an_archive_that_is_cut_off_or_broken_leaves_nothing(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let files = rig.stead.files(&thread("t")).await.unwrap();
    let good = archive(&[entry(b'0', b"one", b"", &[b'x'; 5000]), entry(b'0', b"two", b"", b"y")]);
    for length in [0, 100, 512, 3000, 5632, 6144, 6656] {
        let error = unpack(&files, "in/here", &good[..length]).await.unwrap_err();
        assert_eq!(error.code(), "invalid_request", "cut at {length}");
    }
    let mut unpacking = files.unpack("in/here", Bounds::default()).await.unwrap();
    unpacking.write(good.clone().into()).await.unwrap();
    drop(unpacking);
    for at in [0, 130, 150, 156, 300] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(unpack(&files, ".", &bad).await.unwrap_err().code(), "invalid_request", "changed at {at}");
    }
    assert_eq!(unpack(&files, ".", b"this is no archive at all").await.unwrap_err().code(), "invalid_request");
    wait_for("what was given up to be gone", || async { all(&files).await.is_empty().then_some(()) }).await;
    unpack(&files, "in/here", &good).await.unwrap();
    assert_eq!(
        all(&files).await,
        ["/workspace/in", "/workspace/in/here", "/workspace/in/here/one", "/workspace/in/here/two"]
    );
}

async fn what_an_archive_may_become_is_bounded(rig: Rig, _: &str) {
    rig.stead.create_thread(new_thread("t")).await.unwrap();
    let files = rig.stead.files(&thread("t")).await.unwrap();
    let many: Vec<_> = (0..20).map(|index| entry(b'0', format!("f{index}").as_bytes(), b"", b"")).collect();
    let few = Bounds { entries: 19, ..Bounds::default() };
    assert_eq!(unpack_within(&files, ".", &archive(&many), few).await.unwrap_err().code(), "too_large");
    let small = Bounds { bytes: 1000, ..Bounds::default() };
    let large = archive(&[entry(b'0', b"a", b"", &[0; 600]), entry(b'0', b"b", b"", &[0; 600])]);
    assert_eq!(unpack_within(&files, ".", &large, small).await.unwrap_err().code(), "too_large");
    // Sizes that only the header has: nothing is believed before it is bounded.
    for (kind, path) in [(b'0', "huge"), (b'L', "././@LongLink"), (b'x', "pax"), (b'g', "pax")] {
        let lie = archive(&[sized(kind, path.as_bytes(), b"", b"", 0o77_777_777_777)]);
        assert_eq!(unpack_within(&files, ".", &lie, small).await.unwrap_err().code(), "too_large", "{path}");
    }
    let size = archive(&[entry(b'x', b"pax", b"", b"26 size=99999999999999999\n"), entry(b'0', b"a", b"", b"")]);
    assert_eq!(unpack(&files, ".", &size).await.unwrap_err().code(), "too_large");
    assert!(all(&files).await.is_empty());
}

async fn archives_of_the_common_tar_are_taken(rig: Rig, _: &str) {
    let sandbox = rig.sandbox("t").await;
    let files = sandbox.files().await.unwrap();
    let long = "y".repeat(150);
    out(
        &sandbox,
        &format!("mkdir -p a/{long}; echo 1 >a/{long}/{long}; ln a/{long}/{long} a/second; ln -s second a/l"),
    )
    .await;
    for format in ["gnu", "posix", "ustar"] {
        // ustar has no room for such names.
        let which = if format == "ustar" { "a/second a/l" } else { "a" };
        out(&sandbox, &format!("tar --format={format} -cf {format}.tar {which}")).await;
        let bytes = files.read(format!("{format}.tar")).await.unwrap();
        unpack(&files, format, &bytes).await.unwrap();
        assert_eq!(out(&sandbox, &format!("cat {format}/a/l")).await, "1\n", "{format}");
    }
    assert_eq!(out(&sandbox, "diff -r a gnu/a && diff -r a posix/a && echo same").await, "same\n");
}
