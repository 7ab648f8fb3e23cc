//! Finds where a crate can be mutated, and how.
//!
//! ```text
//!   src/lib.rs ──► syn ──► mod x; ──► src/x.rs …        each expression, statement, body ──► Point { variants }
//! ```
//!
//! N1  Points lie in what ships (`cfgs`): not in tests, constants, statics, `const fn`, types, patterns, attributes
//!     or macros (whose insides are tokens). `matches!` as a whole can be negated.
//! N2  A point is a range of bytes of one file; two points are nested, equal or apart.
//! N3  Points and variants come in the order of the source, so that a seed draws the same from the same source.
//! N4  One point, one mutant: variants are alternatives among which the seed chooses, so that an expression with
//!     three variants is drawn no more often than one with a single one.
//!
//! Branches are not swapped: that is the same as negating the condition.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Lit, ReturnType, Signature, Stmt, Type, UnOp};

use super::cfgs::shipped;

/// A place that can be mutated.
#[derive(Clone, Debug)]
pub struct Point {
    /// The file, relative to the repository.
    pub file: PathBuf,
    pub range: Range<usize>,
    pub line: usize,
    pub shape: Shape,
    pub variants: Vec<Variant>,
}

/// One way to mutate it.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub what: String,
    /// The text that replaces it; for `Shape::Body` the value that is returned at once.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Expression,
    Statement,
    /// An empty range after the opening brace of a function.
    Body,
}

/// A file and its text.
pub struct Source {
    pub file: PathBuf,
    pub text: String,
}

/// Returns all source files of the crate in `dir` (relative to `root`) that ship, and all points in them.
///
/// # Errors
/// If a file cannot be read or parsed; the error names it.
pub fn of_crate(root: &Path, dir: &Path, features: &[&str]) -> Result<(Vec<Source>, Vec<Point>)> {
    let src = dir.join("src");
    let first = if root.join(&src).join("lib.rs").exists() {
        "lib.rs"
    } else {
        "main.rs"
    };
    let mut waiting = VecDeque::from([(src.join(first), src.clone())]);
    let (mut sources, mut points) = (Vec::new(), Vec::new());
    while let Some((file, children)) = waiting.pop_front() {
        let text = std::fs::read_to_string(root.join(&file))
            .with_context(|| format!("{}: cannot be read", file.display()))?;
        let tree = syn::parse_file(&text)
            .with_context(|| format!("{}: cannot be parsed", file.display()))?;
        if !shipped(&tree.attrs, features) {
            continue;
        }
        let mut finder = Finder {
            file: &file,
            text: &text,
            features,
            children,
            points: &mut points,
            modules: Vec::new(),
        };
        finder.visit_file(&tree);
        for (path, below) in finder.modules {
            let found = if path.extension().is_some() {
                Some(path)
            } else {
                let (flat, nested) = (path.with_extension("rs"), path.join("mod.rs"));
                [flat, nested]
                    .into_iter()
                    .find(|path| root.join(path).exists())
            };
            // A module that is missing is one that a condition removes (cfgs.K2).
            waiting.extend(found.map(|path| (path, below)));
        }
        sources.push(Source { file, text });
    }
    Ok((sources, points))
}

struct Finder<'a> {
    file: &'a Path,
    text: &'a str,
    features: &'a [&'a str],
    /// Folder of this file's modules.
    children: PathBuf,
    points: &'a mut Vec<Point>,
    /// Files of modules that were declared, with the folder of their own modules.
    modules: Vec<(PathBuf, PathBuf)>,
}

impl Finder<'_> {
    fn add(&mut self, node: &impl Spanned, shape: Shape, variants: Vec<Variant>) {
        let range = node.span().byte_range();
        self.add_at(range, node.span().start().line, shape, variants);
    }

    fn add_at(&mut self, range: Range<usize>, line: usize, shape: Shape, variants: Vec<Variant>) {
        if !variants.is_empty() {
            let file = self.file.to_path_buf();
            self.points.push(Point {
                file,
                range,
                line,
                shape,
                variants,
            });
        }
    }

    fn text(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn body(&mut self, signature: &Signature, block: &Block) {
        if block.stmts.is_empty() || signature.asyncness.is_some() {
            return;
        }
        let values: &[&str] = match &signature.output {
            ReturnType::Default => &[""],
            ReturnType::Type(_, kind) => defaults(kind),
        };
        let whole = self.text(block).trim_matches(['{', '}']).trim().to_owned();
        let variants = values
            .iter()
            .filter(|value| **value != whole)
            .map(|value| {
                let what = match *value {
                    "" => format!("{} does nothing", signature.ident),
                    value => format!("{} gives {value} at once", signature.ident),
                };
                variant(what, (*value).into())
            })
            .collect();
        let at = block.brace_token.span.open().byte_range().end;
        self.add_at(at..at, signature.span().start().line, Shape::Body, variants);
    }

    fn condition(&mut self, condition: &Expr) {
        if !has_let(condition) {
            let text = format!("!({})", self.text(condition));
            let what = "condition turned round".into();
            self.add(condition, Shape::Expression, vec![variant(what, text)]);
        }
    }

    fn binary(&self, node: &syn::ExprBinary) -> Vec<Variant> {
        let Some((sign, others)) = alternatives(&node.op) else {
            return Vec::new();
        };
        let (left, right) = (self.text(&node.left), self.text(&node.right));
        others
            .iter()
            .map(|other| {
                let text = if sign.ends_with('=') && sign.len() > 1 && !is_comparison(sign) {
                    format!("{left} {other} ({right})")
                } else {
                    format!("({left}) {other} ({right})")
                };
                variant(format!("{sign} → {other}"), text)
            })
            .collect()
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    // These are no code that runs (N1).
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if shipped(&node.attrs, self.features) {
            visit::visit_item_impl(self, node);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !shipped(&node.attrs, self.features) {
            return;
        }
        let name = node.ident.to_string();
        let named = node.attrs.iter().find_map(path_of);
        if node.content.is_some() {
            let outer = self.children.clone();
            self.children.push(name);
            visit::visit_item_mod(self, node);
            self.children = outer;
        } else if let Some(path) = named {
            let beside = self.file.parent().unwrap_or(Path::new(""));
            let file = beside.join(path);
            let below = file.parent().unwrap_or(Path::new("")).to_path_buf();
            self.modules.push((file, below));
        } else {
            let path = self.children.join(name);
            self.modules.push((path.clone(), path));
        }
    }

    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        if shipped(&node.attrs, self.features) && node.sig.constness.is_none() {
            self.body(&node.sig, &node.block);
            self.visit_block(&node.block);
        }
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        if shipped(&node.attrs, self.features) && node.sig.constness.is_none() {
            self.body(&node.sig, &node.block);
            self.visit_block(&node.block);
        }
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default
            && shipped(&node.attrs, self.features)
            && node.sig.constness.is_none()
        {
            self.body(&node.sig, block);
            self.visit_block(block);
        }
    }

    fn visit_stmt(&mut self, node: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = node {
            let call = match expression {
                Expr::Try(node) => &*node.expr,
                other => other,
            };
            if matches!(call, Expr::Call(_) | Expr::MethodCall(_))
                && shipped(attributes(call), self.features)
            {
                let gone = variant("call removed".into(), String::new());
                self.add(node, Shape::Statement, vec![gone]);
            }
        }
        visit::visit_stmt(self, node);
    }

    fn visit_local(&mut self, node: &'ast syn::Local) {
        if shipped(&node.attrs, self.features) {
            visit::visit_local(self, node);
        }
    }

    fn visit_arm(&mut self, node: &'ast syn::Arm) {
        if !shipped(&node.attrs, self.features) {
            return;
        }
        if let Some((_, guard)) = &node.guard {
            self.condition(guard);
        }
        visit::visit_arm(self, node);
    }

    fn visit_field_value(&mut self, node: &'ast syn::FieldValue) {
        if shipped(&node.attrs, self.features) {
            visit::visit_field_value(self, node);
        }
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        if !shipped(attributes(node), self.features) {
            return;
        }
        match node {
            Expr::If(inner) => self.condition(&inner.cond),
            Expr::While(inner) => self.condition(&inner.cond),
            Expr::Binary(inner) if !has_let(node) => {
                let variants = self.binary(inner);
                self.add(node, Shape::Expression, variants);
            }
            Expr::Unary(inner) => {
                let text = self.text(&inner.expr).to_owned();
                let what = match inner.op {
                    UnOp::Not(_) => "! removed",
                    UnOp::Neg(_) => "minus removed",
                    _ => "",
                };
                if !what.is_empty() {
                    self.add(node, Shape::Expression, vec![variant(what.into(), text)]);
                }
            }
            Expr::Lit(inner) => {
                if let Lit::Int(literal) = &inner.lit {
                    self.add(node, Shape::Expression, neighbours(literal));
                }
            }
            Expr::Range(inner) => {
                if let Some(end) = &inner.end
                    && !matches!(**end, Expr::Lit(_))
                {
                    let variants = ["+", "-"].map(|sign| {
                        let text = format!("({}) {sign} 1", self.text(end));
                        variant(format!("end of the range {sign} 1"), text)
                    });
                    self.add(end, Shape::Expression, variants.into());
                }
            }
            Expr::Macro(inner) if inner.mac.path.is_ident("matches") => {
                let text = format!("!{}", self.text(node));
                let what = "matches! turned round".into();
                self.add(node, Shape::Expression, vec![variant(what, text)]);
            }
            Expr::Repeat(inner) => return self.visit_expr(&inner.expr),
            _ => {}
        }
        visit::visit_expr(self, node);
    }
}

fn variant(what: String, text: String) -> Variant {
    Variant { what, text }
}

/// Returns n + 1 and n − 1, with the type that the literal has.
fn neighbours(literal: &syn::LitInt) -> Vec<Variant> {
    let Ok(value) = literal.base10_parse::<u128>() else {
        return Vec::new();
    };
    [value.checked_add(1), value.checked_sub(1)]
        .into_iter()
        .flatten()
        .map(|other| {
            variant(
                format!("{literal} → {other}"),
                format!("{other}{}", literal.suffix()),
            )
        })
        .collect()
}

fn defaults(kind: &Type) -> &'static [&'static str] {
    const INTEGERS: &[&str] = &[
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
    ];
    match kind {
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else {
                return &[];
            };
            match last.ident.to_string().as_str() {
                "bool" => &["true", "false"],
                "Option" => &["None"],
                name if INTEGERS.contains(&name) => &["0", "1"],
                _ => &[],
            }
        }
        Type::Tuple(tuple) if tuple.elems.is_empty() => &[""],
        _ => &[],
    }
}

fn is_comparison(sign: &str) -> bool {
    ["==", "!=", "<=", ">="].contains(&sign)
}

fn alternatives(op: &BinOp) -> Option<(&'static str, &'static [&'static str])> {
    Some(match op {
        BinOp::Lt(_) => ("<", &["<=", ">="]),
        BinOp::Le(_) => ("<=", &["<", ">"]),
        BinOp::Gt(_) => (">", &[">=", "<="]),
        BinOp::Ge(_) => (">=", &[">", "<"]),
        BinOp::Eq(_) => ("==", &["!="]),
        BinOp::Ne(_) => ("!=", &["=="]),
        BinOp::And(_) => ("&&", &["||"]),
        BinOp::Or(_) => ("||", &["&&"]),
        BinOp::Add(_) => ("+", &["-"]),
        BinOp::Sub(_) => ("-", &["+"]),
        BinOp::Mul(_) => ("*", &["+", "/"]),
        BinOp::Div(_) => ("/", &["*"]),
        BinOp::Rem(_) => ("%", &["/"]),
        BinOp::BitAnd(_) => ("&", &["|"]),
        BinOp::BitOr(_) => ("|", &["&"]),
        BinOp::BitXor(_) => ("^", &["|"]),
        BinOp::Shl(_) => ("<<", &[">>"]),
        BinOp::Shr(_) => (">>", &["<<"]),
        BinOp::AddAssign(_) => ("+=", &["-="]),
        BinOp::SubAssign(_) => ("-=", &["+="]),
        BinOp::MulAssign(_) => ("*=", &["+="]),
        BinOp::DivAssign(_) => ("/=", &["*="]),
        BinOp::RemAssign(_) => ("%=", &["/="]),
        BinOp::BitAndAssign(_) => ("&=", &["|="]),
        BinOp::BitOrAssign(_) => ("|=", &["&="]),
        BinOp::BitXorAssign(_) => ("^=", &["|="]),
        BinOp::ShlAssign(_) => ("<<=", &[">>="]),
        BinOp::ShrAssign(_) => (">>=", &["<<="]),
        _ => return None,
    })
}

/// Reports whether the condition binds names, which only a whole condition can.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(node) => has_let(&node.left) || has_let(&node.right),
        Expr::Paren(node) => has_let(&node.expr),
        _ => false,
    }
}

fn path_of(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(syn::ExprLit {
            lit: Lit::Str(path),
            ..
        }) if pair.path.is_ident("path") => Some(path.value()),
        _ => None,
    }
}

fn attributes(node: &Expr) -> &[syn::Attribute] {
    match node {
        Expr::Block(node) => &node.attrs,
        Expr::Call(node) => &node.attrs,
        Expr::If(node) => &node.attrs,
        Expr::Match(node) => &node.attrs,
        Expr::MethodCall(node) => &node.attrs,
        Expr::Unsafe(node) => &node.attrs,
        Expr::Assign(node) => &node.attrs,
        Expr::Return(node) => &node.attrs,
        _ => &[],
    }
}
