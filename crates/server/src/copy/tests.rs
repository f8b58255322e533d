use super::*;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::SystemTime;

fn quiet() -> Copier {
    Copier::new(Arc::new(|_| {}), CancellationToken::new())
}

fn last(copier: &Copier) -> Progress {
    copier.told().0.clone()
}

#[test]
fn everything_of_a_tree_comes_along() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("new/to"));
    std::fs::create_dir_all(from.join("a/b/c")).unwrap();
    std::fs::write(from.join("a/text"), "hello").unwrap();
    std::fs::write(from.join("a/empty"), "").unwrap();
    std::fs::write(from.join("a/b/script"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(from.join("a/b/script"), PermissionsExt::from_mode(0o4755)).unwrap();
    std::fs::hard_link(from.join("a/text"), from.join("a/b/again")).unwrap();
    symlink("/nowhere/at/all", from.join("dangling")).unwrap();
    symlink("a/text", from.join("link")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\nname");
    std::fs::write(from.join(odd), "odd").unwrap();
    let attribute = rustix::fs::setxattr(from.join("a/text"), "user.note", b"kept", rustix::fs::XattrFlags::empty());
    let old = SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567_890_123);
    File::open(from.join("a/text")).unwrap().set_modified(old).unwrap();
    std::fs::set_permissions(from.join("a/b/c"), PermissionsExt::from_mode(0o555)).unwrap();
    File::open(from.join("a")).unwrap().set_modified(old).unwrap();
    rustix::fs::mknodat(CWD, from.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();

    let copier = quiet();
    copier.copy(&from, &to).unwrap();
    let read = |path: &str| std::fs::read_to_string(to.join(path)).unwrap();
    assert_eq!((read("a/text"), read("a/empty"), read("link")), ("hello".into(), String::new(), "hello".into()));
    assert_eq!(std::fs::read_to_string(to.join(odd)).unwrap(), "odd");
    assert_eq!(std::fs::read_link(to.join("dangling")).unwrap(), Path::new("/nowhere/at/all"));
    let stat = |path: &str| std::fs::metadata(to.join(path)).unwrap();
    assert_eq!(stat("a/b/script").mode() & 0o7777, 0o4755);
    assert_eq!(stat("a/b/c").mode() & 0o7777, 0o555);
    assert_eq!(stat("a/text").ino(), stat("a/b/again").ino(), "two names of one file");
    assert_eq!((stat("a/text").modified().unwrap(), stat("a").modified().unwrap()), (old, old));
    if attribute.is_ok() {
        let mut value = [0; 16];
        let length = rustix::fs::getxattr(to.join("a/text"), "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
    let told = last(&copier);
    assert_eq!((told.left_out_count, told.left_out.len()), (2, 2), "{told:?}");
    assert!(!to.join("pipe").exists() && !to.join("socket").exists());
    assert_eq!(told.bytes, 5 + 10 + 3);
}

#[test]
fn holes_stay_holes_and_the_size_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::create_dir(&from).unwrap();
    let sparse = File::create(from.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 40 << 20).unwrap();
    sparse.set_len(100 << 20).unwrap();
    File::create(from.join("all hole")).unwrap().set_len(1 << 30).unwrap();
    quiet().copy(&from, &to).unwrap();
    let stat = std::fs::metadata(to.join("sparse")).unwrap();
    assert_eq!(stat.len(), 100 << 20);
    assert!(stat.blocks() * 512 < 10 << 20, "{} blocks", stat.blocks());
    let mut bytes = [0; 8];
    File::open(to.join("sparse")).unwrap().read_exact_at(&mut bytes, 40 << 20).unwrap();
    assert_eq!(&bytes, b"middle\0\0");
    assert_eq!(std::fs::metadata(to.join("all hole")).unwrap().len(), 1 << 30);
}

#[test]
fn thousands_of_files_come_along_and_progress_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    for n in 0..40 {
        std::fs::create_dir_all(from.join(format!("d{n}"))).unwrap();
        for m in 0..50 {
            std::fs::write(from.join(format!("d{n}/f{m}")), format!("{n} {m}")).unwrap();
        }
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    let copier = Copier::new(Arc::new(move |told| ear.lock().unwrap().push(told.clone())), CancellationToken::new());
    copier.copy(&from, &to).unwrap();
    for n in 0..40 {
        for m in 0..50 {
            assert_eq!(std::fs::read_to_string(to.join(format!("d{n}/f{m}"))).unwrap(), format!("{n} {m}"));
        }
    }
    let heard = heard.lock().unwrap();
    assert_eq!(heard.last().unwrap().files, 2000);
    assert!(heard.is_sorted_by_key(|told| told.files));
}

#[test]
fn a_copy_that_is_stopped_or_fails_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("x"), "x").unwrap();
    let stop = CancellationToken::new();
    stop.cancel();
    let stopped = Copier::new(Arc::new(|_| {}), stop).copy(&from, &dir.path().join("stopped"));
    assert!(matches!(stopped, Err(CopyError::Stopped)), "{stopped:?}");
    let taken = dir.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("x"), "not ours").unwrap();
    let refused = quiet().copy(&from, &taken);
    assert!(matches!(refused, Err(CopyError::Io { .. })), "{refused:?}");
    assert_eq!(std::fs::read_to_string(taken.join("x")).unwrap(), "not ours", "nothing is written over");
    quiet().copy(&dir.path().join("nobody"), &dir.path().join("none")).unwrap();
    assert!(!dir.path().join("none").exists(), "what isn't there is nothing to copy");
}

#[test]
fn a_source_that_changes_meanwhile_leads_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let (from, secret) = (dir.path().join("from"), dir.path().join("secret"));
    std::fs::create_dir_all(from.join("d")).unwrap();
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("f"), "secret").unwrap();
    std::fs::write(from.join("d/f"), "plain").unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = std::fs::rename(from.join("d"), from.join("e"));
                let _ = symlink(&secret, from.join("d"));
                let _ = std::fs::remove_file(from.join("d"));
                let _ = std::fs::rename(from.join("e"), from.join("d"));
            }
        });
        for round in 0..200 {
            let to = dir.path().join(format!("to{round}"));
            let copied = quiet().copy(&from, &to);
            // Both names of one directory may be met; the second is refused, not merged.
            if copied.is_ok() {
                for name in ["d", "e"] {
                    let made = to.join(name);
                    let real = std::fs::symlink_metadata(&made).is_ok_and(|stat| stat.is_dir());
                    if real && made.join("f").exists() {
                        assert_eq!(std::fs::read_to_string(made.join("f")).unwrap(), "plain", "round {round}");
                    }
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
