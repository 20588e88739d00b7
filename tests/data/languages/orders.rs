//! Orders, and what they cost.
#![allow(dead_code)]

use std::collections::HashMap;
use std::fmt::{self, Display};

const LIMIT: usize = 3;

/// The rates by country.
static RATES: &[(&str, u32)] = &[
    ("is", 12),
    ("ee", 9),
];

/// An order.
///
/// It has lines.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    pub id: &'a str,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy)]
pub enum Line {
    Goods { weight: u32 },
    Gift,
}

pub type Orders<'a> = HashMap<String, Order<'a>>;

/// What can be charged.
pub trait Charge {
    type Output;

    /// Returns the price.
    fn charge(&self, rate: u32) -> Self::Output;

    fn free(&self) -> bool {
        false
    }
}

impl<'a> Order<'a> {
    /// Makes an order without lines.
    pub fn new(id: &'a str) -> Self {
        Self { id, lines: Vec::new() }
    }

    /// Adds a line, unless the order is full. A long comment, so that the block is too large to stay in one passage, and
    /// each function gets one of its own, as those of large types do.
    #[must_use]
    pub fn add(&mut self, line: Line) -> Result<usize, String> {
        fn is_full(order: &Order) -> bool {
            order.lines.len() >= LIMIT
        }
        if is_full(self) {
            return Err(format!("{} is full", self.id));
        }
        self.lines.push(line);
        Ok(self.lines.len())
    }
}

impl<'a> Charge for Order<'a> {
    type Output = u32;

    fn charge(&self, rate: u32) -> u32 {
        self.lines.iter().map(|line| match line { Line::Goods { weight } => weight * rate, Line::Gift => 0 }).sum()
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", self)
    }
}

macro_rules! order {
    ($id:expr) => {
        Order::new($id)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_order_costs_nothing() {
        assert_eq!(order!("a").charge(2), 0);
    }
}
