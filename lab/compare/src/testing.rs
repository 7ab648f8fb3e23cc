//! Made-up comparisons for tests: every figure is chosen by hand.

use std::collections::BTreeMap;

use crate::model::{
    Allocator, Check, Column, Comparison, Machine, Measure, Program, Run, SCHEMA, Settings, Verdict,
};
use crate::sum;

/// Builds a program whose allocators have this peak in five rounds, and nothing else.
pub fn program(name: &str, peaks: &[(&str, f64)]) -> Program {
    let column = |(allocator, peak): &(&str, f64)| Column {
        allocator: (*allocator).into(),
        verdict: Verdict::Measured,
        check: Some(Check {
            calls: 1000,
            processes: 1,
            served_by: format!("/lib/{allocator}.so"),
        }),
        runs: (1..=5)
            .map(|round| Run {
                round,
                figures: BTreeMap::from([(Measure::PeakBytes, *peak)]),
                samples: 100,
                curve: vec![(0.0, 0), (50.0, *peak as u64), (100.0, *peak as u64 / 2)],
                ..Run::default()
            })
            .collect(),
        cells: vec![],
        typical: None,
    };
    Program {
        name: name.into(),
        what: vec![name.into(), "--all".into()],
        replayed: false,
        notes: vec![],
        columns: peaks.iter().map(column).collect(),
    }
}

/// Builds a comparison of programs, summed up.
pub fn comparison(mut programs: Vec<Program>) -> Comparison {
    for program in &mut programs {
        sum::cells(program, 5, 1);
    }
    let names: Vec<String> = programs[0]
        .columns
        .iter()
        .map(|column| column.allocator.clone())
        .collect();
    Comparison {
        schema: SCHEMA,
        skinflint: "0".into(),
        began_unix_s: 1_800_000_000,
        command: vec!["skinflint".into(), "compare".into()],
        machine: Machine::default(),
        settings: Settings {
            runs: 5,
            reference: names[0].clone(),
            timeout_s: None,
            idle_s: None,
            paced: None,
            interval_ms: 10,
            seed: 1,
        },
        allocators: names
            .iter()
            .map(|name| Allocator {
                name: name.clone(),
                version: "1.2".into(),
                library: Some(format!("/lib/{name}.so")),
                source: "a package".into(),
                environment: BTreeMap::new(),
            })
            .collect(),
        missing: vec![],
        overall: sum::overall(&programs),
        changes: sum::changes(&programs),
        programs,
        warnings: vec![],
        interrupted: false,
    }
}
