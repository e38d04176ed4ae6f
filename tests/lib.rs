//! End-to-end tests of Placet live in `e2e/`, their foreign clients in `clients/`, released record formats in `golden/`.
