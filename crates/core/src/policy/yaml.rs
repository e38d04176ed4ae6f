//! YAML as a tree that remembers where each part stands.
//! Absent on purpose: anchors, aliases, tags and several documents in one file; a policy that needs expanding before
//! it can be read is a policy that nobody reads.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::Mistake;
use crate::limits::POLICY_MISTAKES_MAX;

/// Deepest nesting of a policy document; its own forms need six.
const DEPTH_MAX: usize = 24;

/// Where something stands, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl At {
    fn of(marker: &Marker) -> Self {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Self { line: number(marker.line()).max(1), column: number(marker.col()).saturating_add(1) }
    }

    pub(super) fn says(self, message: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.column, message: message.into() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Text; `plain` when it was written without quotes, so that `null` and `true` are words, not text.
    Scalar {
        text: String,
        plain: bool,
    },
    Sequence(Vec<Node>),
    /// In the order of the document.
    Mapping(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) at: At,
    pub(super) text: String,
}

impl Node {
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// Reads one document. Syntax ends the reading at the first mistake; duplicate keys and forbidden forms are
/// collected, and the tree is still returned so that the rest can be checked in the same pass.
pub(super) fn parse(text: &str) -> (Option<Node>, Vec<Mistake>) {
    let mut composer = Composer { parser: Parser::new_from_str(text), mistakes: Vec::new() };
    let node = composer.document();
    let mut mistakes = composer.mistakes;
    let node = match node {
        Ok(node) => node,
        Err(mistake) => {
            mistakes.push(mistake);
            None
        }
    };
    (node, mistakes)
}

struct Composer<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    mistakes: Vec<Mistake>,
}

impl<'a> Composer<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Mistake> {
        match self.parser.next() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => Err(At::of(error.marker()).says(format!("not YAML: {}", error.info()))),
            None => Err(At { line: 1, column: 1 }.says("the document ends too early")),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Mistake> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                event => {
                    let node = self.node(event, span, 0)?;
                    if root.is_some() {
                        return Err(node.at.says("a second document; a policy is one document"));
                    }
                    root = Some(node);
                }
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Mistake> {
        let at = At::of(&span.start);
        if depth > DEPTH_MAX {
            return Err(at.says("nested too deep"));
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_indirection(at, anchor, tag.is_some());
                let plain = style == ScalarStyle::Plain;
                Ok(Node { at, kind: Kind::Scalar { text: text.into_owned(), plain } })
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_indirection(at, anchor, tag.is_some());
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => return Ok(Node { at, kind: Kind::Sequence(items) }),
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_indirection(at, anchor, tag.is_some());
                self.mapping(at, depth)
            }
            Event::Alias(_) => Err(at.says("an alias; policies are written out")),
            _ => Err(at.says("not YAML: a value belongs here")),
        }
    }

    fn mapping(&mut self, at: At, depth: usize) -> Result<Node, Mistake> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut first_at: Option<At> = None;
        let mut lines: HashMap<String, u64> = HashMap::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                // The parser may place a block mapping at its indicator; its first key is where a reader looks.
                return Ok(Node { at: first_at.unwrap_or(at), kind: Kind::Mapping(entries) });
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            let Kind::Scalar { text, .. } = key.kind else {
                self.mistake(key.at.says("a key that is not text"));
                continue;
            };
            first_at.get_or_insert(key.at);
            if let Some(line) = lines.get(&text) {
                self.mistake(key.at.says(format!("key `{text}` appears twice, first in line {line}")));
                continue;
            }
            lines.insert(text.clone(), key.at.line);
            entries.push((Key { at: key.at, text }, value));
        }
    }

    fn mistake(&mut self, mistake: Mistake) {
        if self.mistakes.len() < POLICY_MISTAKES_MAX {
            self.mistakes.push(mistake);
        }
    }

    fn refuse_indirection(&mut self, at: At, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.mistake(at.says("an anchor; policies are written out"));
        }
        if tagged {
            self.mistake(at.says("a tag; a policy has no types of its own"));
        }
    }
}
