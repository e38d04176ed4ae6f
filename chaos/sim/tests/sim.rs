//! The short version: 200 seeds, the seeds that once failed, and that a seed repeats exactly what it did. With the
//! feature `planted`: that every planted bug is found, within the number of seeds that stands beside it.

use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_placet-sim")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(not(feature = "planted"))]
mod sound {
    use super::{said, sim};

    #[test]
    fn two_hundred_seeds_hold_every_property() {
        let output = sim(&["--seeds", "200"]);
        println!("{}", said(&output));
        assert!(output.status.success(), "{}", said(&output));
    }

    #[test]
    fn seeds_that_once_failed_hold_now() {
        for line in include_str!("../regressions.txt").lines().filter(|line| !line.starts_with('#')) {
            let arguments: Vec<&str> = line.split_whitespace().take_while(|word| *word != "#").collect();
            let output = sim(&arguments);
            assert!(output.status.success(), "{line}\n{}", said(&output));
        }
    }

    #[test]
    fn a_seed_repeats_exactly_what_it_did() {
        for seed in ["3", "14", "15"] {
            let line = |output: &std::process::Output| said(output).lines().next().unwrap_or_default().to_owned();
            let (one, two) = (sim(&["--seed", seed]), sim(&["--seed", seed]));
            assert!(line(&one).contains(" digest "), "{}", said(&one));
            assert_eq!(line(&one), line(&two));
        }
    }
}

#[cfg(feature = "planted")]
mod planted {
    use placet_core::planted::Bug;

    use super::{said, sim};

    /// Within how many seeds each bug must be found.
    fn within(bug: Bug) -> u32 {
        match bug {
            Bug::NoFencing | Bug::VoteNotDurable => 400,
            _ => 100,
        }
    }

    #[test]
    fn every_planted_bug_is_found() {
        let mut missed = Vec::new();
        for bug in Bug::ALL {
            let output = sim(&["--seeds", &within(bug).to_string(), "--plant", bug.name()]);
            let text = said(&output);
            println!("{}: {}", bug.name(), text.lines().last().unwrap_or_default());
            if !output.status.success() {
                missed.push((bug, text));
            }
        }
        assert!(missed.is_empty(), "{missed:?}");
    }
}
