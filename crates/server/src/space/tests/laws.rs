//! Any sequence of changes leads to the same on every backend, and to what a model of directories says; what lasts is
//! the same after it was read again, with a snapshot in between or without.

use super::*;
use crate::memory::Depth;
use proptest::prelude::*;
use std::collections::BTreeMap;
use stead_model::clock::Timestamp;

#[derive(Debug, Clone)]
enum Deed {
    Put(Vec<usize>, u8),
    Remove(Vec<usize>, bool),
    Snapshot,
    Reopen,
}

const NAMES: [&str; 4] = ["a", "a-b", "..b", "ö"];

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let path = || proptest::collection::vec(0..NAMES.len(), 1..4);
    let deed = prop_oneof![
        6 => (path(), any::<u8>()).prop_map(|(path, value)| Deed::Put(path, value)),
        3 => (path(), any::<bool>()).prop_map(|(path, all)| Deed::Remove(path, all)),
        1 => Just(Deed::Snapshot),
        1 => Just(Deed::Reopen),
    ];
    proptest::collection::vec(deed, 1..30)
}

/// A file, or a directory.
type Model = BTreeMap<String, Option<u8>>;

fn put_in(model: &mut Model, path: &str, value: u8) -> Result<bool, &'static str> {
    let above: Vec<_> = path.match_indices('/').skip(1).map(|(at, _)| path[..at].to_owned()).collect();
    let through_file = above.iter().any(|above| matches!(model.get(above), Some(Some(_))));
    if through_file || matches!(model.get(path), Some(None)) {
        return Err("invalid_path");
    }
    for above in above {
        model.entry(above).or_insert(None);
    }
    Ok(model.insert(path.to_owned(), Some(value)).is_none())
}

fn remove_from(model: &mut Model, path: &str, all: bool) -> Result<(), &'static str> {
    let mut above = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
    if above.any(|above| matches!(model.get(above), Some(Some(_)))) {
        return Err("invalid_path");
    }
    if !model.contains_key(path) {
        return Err("not_found");
    }
    let inside = format!("{path}/");
    if !all && model.keys().any(|key| key.starts_with(&inside)) {
        return Err("conflict");
    }
    model.retain(|key, _| key != path && !key.starts_with(&inside));
    Ok(())
}

fn text(path: &[usize]) -> String {
    path.iter().fold(String::new(), |path, name| path + "/" + NAMES[*name])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_backend_does_what_the_model_does(deeds in deeds()) {
        let dir = tempfile::tempdir().unwrap();
        let table = [("/f", "filesystem"), ("/h", "store"), ("/s", "state")];
        let mut space = space(dir.path(), &table);
        let mut model = Model::new();
        for deed in deeds {
            match deed {
                Deed::Put(path, value) => {
                    let path = text(&path);
                    let want = put_in(&mut model, &path, value);
                    for base in ["/f", "/h", "/s"] {
                        prop_assert_eq!(put(&space, &format!("{base}{path}"), &value.to_string()), want, "{}{}", base, path);
                    }
                }
                Deed::Remove(path, all) => {
                    let path = text(&path);
                    let want = remove_from(&mut model, &path, all);
                    let depth = if all { Depth::WithAllBelow } else { Depth::Alone };
                    for base in ["/f", "/h", "/s"] {
                        let removed = space.remove(&at(&format!("{base}{path}")), depth, &Condition::Any);
                        prop_assert_eq!(removed.map_err(code), want, "{}{}", base, path);
                    }
                }
                Deed::Snapshot => {
                    space.hot.as_ref().unwrap().snapshot(Timestamp(7)).unwrap();
                }
                Deed::Reopen => {
                    let routes = Arc::clone(&space.routes);
                    space.hot = None;
                    let hot = Hot::open(&dir.path().join(".memories/journal"), Bounds::default(), &routes).unwrap();
                    prop_assert_eq!(hot.warnings.len(), 0);
                    space.hot = Some(Arc::new(hot));
                }
            }
        }
        for base in ["/f", "/h", "/s"] {
            // In the order of the tree, which is not that of paths as text.
            let mut want: Vec<_> = model.iter().collect();
            want.sort_by_key(|(path, _)| path.replace('/', "\0"));
            let want: Vec<_> = want
                .into_iter()
                .map(|(path, value)| match value {
                    Some(value) => format!("{base}{path} file {}", value.to_string().len()),
                    None => format!("{base}{path} dir"),
                })
                .collect();
            prop_assert_eq!(listed(&space, base, 9, 3).unwrap(), want);
            for (path, value) in &model {
                let want = value.map(|value| value.to_string()).ok_or("invalid_path");
                prop_assert_eq!(read(&space, &format!("{base}{path}")), want);
            }
        }
    }
}
