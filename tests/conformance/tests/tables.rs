//! The tables fit the tests, and the pages are what the tables say. `PLACET_BLESS=1` writes the pages again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails, panics")]

use placet_conformance::sources::Sources;
use placet_conformance::{cases, differences, root};

#[test]
fn every_case_has_a_test_or_a_reason() {
    let (table, sources) = (cases::Table::load(&root()).unwrap(), Sources::scan(&root()).unwrap());
    bless("docs/CONFORMANCE.md", &table.page(&sources));
    none(&table.problems(&sources));
    is_page("docs/CONFORMANCE.md", &table.page(&sources));
}

#[test]
fn every_difference_is_shown_by_a_test() {
    let (table, sources) = (differences::Table::load(&root()).unwrap(), Sources::scan(&root()).unwrap());
    bless("docs/DIFFERENCES.md", &table.page(&sources));
    none(&table.problems(&sources));
    is_page("docs/DIFFERENCES.md", &table.page(&sources));
}

fn none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Written also when something is wrong, so that the page shows what.
fn bless(file: &str, page: &str) {
    if std::env::var_os("PLACET_BLESS").is_some() {
        std::fs::write(root().join(file), page).unwrap();
    }
}

fn is_page(file: &str, page: &str) {
    let is = std::fs::read_to_string(root().join(file)).unwrap();
    assert!(is == page, "{file} is not what the table says; PLACET_BLESS=1 writes it again");
}
