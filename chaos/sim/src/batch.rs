//! Many seeds, a process for each: nothing of one run reaches another, and a seed alone repeats exactly what it did.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A run takes a second; one that takes this long has no end.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Panics of this process, the first one's words.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Remembers the first panic: a task that panics ends in silence.
pub fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANIC.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| info.to_string());
        before(info);
    }));
}

/// The first panic, if there was one.
pub fn panicked() -> Option<String> {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The command that repeats a run.
pub fn again(seed: u64, arguments: &[String]) -> String {
    format!("./dev chaos sim --seed {seed} {} --trace", arguments.join(" "))
}

/// Which seeds.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The first.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// Processes at a time.
    pub jobs: usize,
    /// What each is given besides its seed.
    pub arguments: Vec<String>,
}

/// Sums over the runs of a batch.
#[derive(Debug, Default)]
struct Sums {
    numbers: BTreeMap<String, u64>,
    recovered: Vec<u64>,
    failed: BTreeMap<u64, String>,
}

/// Runs a batch; with `wanted`, until the first violation, which is then success.
pub fn run(batch: &Batch, wanted: bool) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let program = std::env::current_exe()?;
    let (next, enough) = (Arc::new(AtomicU64::new(batch.from)), Arc::new(AtomicBool::new(false)));
    let sums = Arc::new(Mutex::new(Sums::default()));
    let workers = (0..batch.jobs.max(1)).map(|_| {
        let (batch, program, sums) = (batch.clone(), program.clone(), sums.clone());
        let (next, enough) = (next.clone(), enough.clone());
        std::thread::spawn(move || -> anyhow::Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed >= batch.from + batch.seeds || enough.load(Ordering::SeqCst) {
                    return Ok(());
                }
                let (text, success) = one(&program, seed, &batch.arguments)?;
                let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                if !success {
                    enough.store(wanted, Ordering::SeqCst);
                    let why = text.lines().find(|line| line.starts_with("VIOLATED"));
                    let why = why.unwrap_or("the run had no end, or ended without a word").to_owned();
                    if !wanted {
                        println!("seed {seed}: {why}\n  {}", again(seed, &batch.arguments));
                    }
                    sums.failed.insert(seed, why);
                }
                sums.add(&text);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
    }
    let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
    sums.recovered.sort_unstable();
    let ran = sums.numbers.get("runs").copied().unwrap_or_default();
    println!(
        "simulated {ran} seeds from {}: {} violated; {} entries, {} permits, {} crashes, {} frames, {:.1} h simulated \
         in {:.0} s; decides again after median {} ms, worst {} ms",
        batch.from,
        sums.failed.len(),
        sums.of("entries"),
        sums.of("permits"),
        sums.of("crashes"),
        sums.of("frames"),
        sums.of("simulated_ms") as f64 / 3_600_000.0,
        begun.elapsed().as_secs_f64(),
        sums.recovered.get(sums.recovered.len() / 2).copied().unwrap_or_default(),
        sums.recovered.last().copied().unwrap_or_default(),
    );
    if wanted {
        let Some((seed, why)) = sums.failed.first_key_value() else {
            println!("the planted bug was not found");
            return Ok(ExitCode::FAILURE);
        };
        println!("found by seed {seed}, run {ran}: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(if sums.failed.is_empty() && ran == batch.seeds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What one run printed, and whether it ended well. One that does not end is ended.
fn one(program: &Path, seed: u64, arguments: &[String]) -> anyhow::Result<(String, bool)> {
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut said = child.stdout.take().ok_or_else(|| anyhow::anyhow!("no output"))?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        said.read_to_string(&mut text).map(|_| text)
    });
    let begun = Instant::now();
    let success = loop {
        if let Some(status) = child.try_wait()? {
            break status.success();
        }
        if begun.elapsed() > RUN_MAX {
            child.kill()?;
            child.wait()?;
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    crate::world::sweep(child.id())?;
    let text = reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
    Ok((text, success))
}

impl Sums {
    fn of(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// Reads the line that a run prints about itself.
    fn add(&mut self, output: &str) {
        let Some(line) = output.lines().find(|line| line.starts_with("seed ") && line.contains(" digest ")) else {
            return;
        };
        *self.numbers.entry("runs".to_owned()).or_default() += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let [name, value] = pair else { continue };
            let Ok(number) = value.parse::<u64>() else { continue };
            if *name == "recovered_ms" {
                self.recovered.push(number);
            } else {
                *self.numbers.entry((*name).to_owned()).or_default() += number;
            }
        }
    }
}
