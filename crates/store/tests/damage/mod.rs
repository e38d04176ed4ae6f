//! Every file of a store, damaged in every way: what was synced is all there, or the store refuses and says what to do.
//! Never a hole, never another answer.

mod model;

use std::fs;
use std::path::{Path, PathBuf};

use placet_store::{OpenError, REPAIR, open};

use self::model::{Model, Moment};

/// One damage to one file.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip {
        at: u64,
        bit: u8,
    },
    Zero {
        at: u64,
        len: u64,
    },
    Noise {
        at: u64,
        len: u64,
    },
    Cut {
        to: u64,
    },
    Delete,
    /// Bytes that a writer never finished.
    Append {
        len: u64,
    },
}

impl Damage {
    fn apply(self, path: &Path) {
        if let Self::Delete = self {
            fs::remove_file(path).unwrap();
            return;
        }
        let mut bytes = fs::read(path).unwrap();
        let size = bytes.len();
        let range = |at: u64, len: u64| {
            let at = usize::try_from(at).unwrap().min(size);
            at..(at + usize::try_from(len).unwrap()).min(size)
        };
        match self {
            Self::Flip { at, bit } => bytes[usize::try_from(at).unwrap()] ^= 1 << bit,
            Self::Zero { at, len } => bytes[range(at, len)].fill(0),
            Self::Noise { at, len } => {
                for (n, byte) in bytes[range(at, len)].iter_mut().enumerate() {
                    *byte = byte.wrapping_mul(31).wrapping_add(u8::try_from(n % 251).unwrap()) | 1;
                }
            }
            Self::Cut { to } => bytes.truncate(usize::try_from(to).unwrap()),
            Self::Append { len } => bytes.extend((0..len).map(|n| u8::try_from(n % 255 + 1).unwrap())),
            Self::Delete => {}
        }
        // A file of its own: the original may be a hard link away.
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Damages spread over a file of `size` bytes; `places` of each kind.
fn damages(size: u64, places: u64) -> Vec<Damage> {
    let mut all =
        vec![Damage::Delete, Damage::Cut { to: 0 }, Damage::Append { len: 1 }, Damage::Append { len: 40_000 }];
    let step = (size / places).max(1);
    for (n, at) in (0..size).step_by(usize::try_from(step).unwrap()).enumerate() {
        let bit = u8::try_from(n % 8).unwrap();
        all.push(Damage::Flip { at, bit });
        all.push(Damage::Cut { to: at });
        all.push(Damage::Zero { at, len: 7 });
        all.push(if n.is_multiple_of(2) { Damage::Zero { at, len: 4096 } } else { Damage::Noise { at, len: 512 } });
    }
    if size > 0 {
        all.push(Damage::Flip { at: size - 1, bit: 0 });
        all.push(Damage::Cut { to: size - 1 });
    }
    all
}

/// Every file that is the store's, and no lock or diary.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "rocksdb" {
                folders.push(path);
            } else if path.is_file() && name != "LOCK" {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    whole: usize,
    refused: usize,
    stopped: usize,
    older_state: usize,
}

/// What a damaged store did, checked.
fn outcome(data: &Path, model: &Model, moment: &Moment, case: &str, tally: &mut Tally) {
    let store = match open(data, &model::options()) {
        Err(error @ OpenError::Damaged { .. }) => {
            let text = error.to_string();
            assert!(text.contains(data.to_str().unwrap()) && text.contains(REPAIR), "{case}: {text}");
            tally.refused += 1;
            // A look at everything finds it as well, and so does the next start: the refusal destroys nothing that it speaks of.
            assert!(matches!(open(data, &model::options()), Err(OpenError::Damaged { .. })), "{case}: it forgot");
            return;
        }
        Err(other) => panic!("{case}: {other:?}"),
        Ok(store) => store,
    };
    match model.check_log(&store, moment) {
        Ok(()) => {}
        Err(reason) if reason.contains("orruption") || reason.contains("is damaged") => {
            tally.stopped += 1;
            return;
        }
        Err(reason) => panic!("{case}: {reason}"),
    }
    match model.check_state(&store) {
        Ok(at) if at >= moment.flushed => tally.whole += 1,
        Ok(_) => tally.older_state += 1,
        Err(reason) if reason.contains("orruption") || reason.contains("state cannot be read") => tally.stopped += 1,
        Err(reason) => panic!("{case}: {reason}"),
    }
}

/// How many places of each file are damaged, and which share of the cases is played. Without a number: a few hundred
/// cases; with one, all of them.
fn effort() -> (u64, usize) {
    let asked = std::env::var("PLACET_DAMAGE_PLACES").ok().and_then(|text| text.parse().ok());
    asked.map_or((2, 7), |places| (places, 1))
}

fn run(model: &Model, moment: &Moment, (places, share): (u64, usize), which: impl Fn(&str) -> bool) -> Tally {
    let mut tally = Tally::default();
    let scratch = model::folder();
    let data = scratch.path().join("data");
    let mut case_number = 0usize;
    for file in files(&moment.image).into_iter().filter(|file| which(file.to_str().unwrap())) {
        let size = fs::metadata(moment.image.join(&file)).unwrap().len();
        for damage in damages(size, places) {
            case_number += 1;
            if !case_number.is_multiple_of(share) {
                continue;
            }
            if data.exists() {
                fs::remove_dir_all(&data).unwrap();
            }
            copy(&moment.image, &data);
            damage.apply(&data.join(&file));
            let case = format!("{} {damage:?} of {size} bytes, {}", file.display(), moment.name);
            outcome(&data, model, moment, &case, &mut tally);
        }
    }
    tally
}

/// Goal: no damage to any file costs a synced entry or vote in silence, or changes an answer.
#[test]
fn damage_is_refused_or_harmless() {
    let model = Model::make();
    let effort = effort();
    for moment in &model.moments {
        let log = run(&model, moment, effort, |file| file.starts_with("log/"));
        let state = run(&model, moment, effort, |file| file.starts_with("state/"));
        let beside = run(&model, moment, (effort.0, 1), |file| !file.contains('/'));
        println!("{}: log {log:?}, state {state:?}, beside {beside:?}", moment.name);
        assert!(log.refused > 0 && state.refused > 0 && beside.refused > 0);
    }
}

/// Goal: an undamaged image opens whole, at every moment.
#[test]
fn a_killed_store_comes_back_whole() {
    let model = Model::make();
    for moment in &model.moments {
        let scratch = model::folder();
        let data = scratch.path().join("data");
        copy(&moment.image, &data);
        let mut tally = Tally::default();
        outcome(&data, &model, moment, &moment.name, &mut tally);
        assert_eq!(tally.whole, 1, "{}: {tally:?}", moment.name);
        let report = placet_store::scan(&data, &model::options()).unwrap();
        assert_eq!(report.findings, [], "{}", moment.name);
        assert_eq!((report.log_records, report.without_checksum), (moment.synced, 0));
        assert!(report.entries > 0 && report.state_records > report.entries, "{report:?}");
    }
}

/// Goal: what was written and never synced may be torn anywhere, and the rest is whole.
#[test]
fn a_torn_unsynced_tail_is_cut() {
    let model = Model::make();
    let moment = &model.unsynced;
    let scratch = model::folder();
    let data = scratch.path().join("data");
    let wal = files(&moment.image)
        .into_iter()
        .rfind(|file| file.starts_with("log") && file.extension().is_some_and(|kind| kind == "log"))
        .unwrap();
    let (size, from) = (fs::metadata(moment.image.join(&wal)).unwrap().len(), moment.synced_bytes);
    assert!(size > from + 40_000, "{size} and {from}");
    let mut cut = 0;
    let step = if effort().1 == 1 { 1009 } else { 5003 };
    for at in (from..size).step_by(step) {
        for damage in [
            Damage::Cut { to: at },
            Damage::Zero { at, len: size },
            Damage::Zero { at, len: 7 },
            Damage::Zero { at, len: 4096 },
            Damage::Noise { at, len: 4096 },
        ] {
            if data.exists() {
                fs::remove_dir_all(&data).unwrap();
            }
            copy(&moment.image, &data);
            damage.apply(&data.join(&wal));
            let case = format!("{damage:?} of {size} bytes, {from} synced");
            let store = open(&data, &model::options()).unwrap_or_else(|error| panic!("{case}: {error}"));
            model.check_log(&store, moment).unwrap_or_else(|reason| panic!("{case}: {reason}"));
            cut += 1;
        }
    }
    println!("{cut} torn tails were cut");
}
