//! The fleet's page over HTTP: what it shows is what the questions answer, and only for whoever has its address.
//!
//! ```text
//!   tables of a law ─► Serving ─► requests with and without the token ─► 200: sections   403, 404: a line
//! ```
//!
//! Not here: whether the questions' answers are right (embedded.rs).

mod judge;

use std::io::{Read, Write};
use std::net::TcpStream;

use skinflint_fleet::questions::top::{self, By};
use skinflint_fleet::questions::{Period, Scope};
use skinflint_fleet::serve::Serving;
use skinflint_fleet::show::bytes;
use skinflint_fleet_tables::law::BUILDS;

/// Sends each request, has it answered, and returns status and text of each.
fn asked(fleet: &judge::Fleet, serving: &Serving, requests: &[String]) -> Vec<(u16, String)> {
    let ask = |request: &String| {
        let url = serving.url();
        let address = url
            .strip_prefix("http://")
            .unwrap()
            .split('/')
            .next()
            .unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        serving.serve_one(&|| Ok(fleet.engine())).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    };
    requests.iter().map(ask).collect()
}

fn get(serving: &Serving, more: &str) -> String {
    let url = serving.url();
    let (address, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    format!("GET /{path}{more} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
}

#[test]
fn the_page_shows_what_the_questions_answer() {
    let fleet = judge::made(11, None);
    let serving = Serving::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let services = fleet.law.services();
    let one = services[1].name.clone();
    let requests = [
        get(&serving, ""),
        get(&serving, &format!("&service={one}&from=42&to=41")),
        get(&serving, "&service=%3Cb%3E"),
        get(&serving, "&from=41&to=41"),
    ];
    let answers = asked(&fleet, &serving, &requests);
    let page = &answers[0].1;
    assert_eq!(answers[0].0, 200, "{page}");
    let engine = fleet.engine();
    let scope = Scope::new(&*engine, None, None).unwrap();
    let period = Period::of(&*engine, &scope).unwrap();
    let rows = top::ask(&*engine, &top::sql(&scope, By::Stack, 15, None), By::Stack).unwrap();
    assert_eq!(rows.len(), 15);
    for row in &rows {
        let name = row.name.replace('<', "&lt;");
        assert!(
            page.contains(&format!("<td class=\"name\">{name}</td>")),
            "{name}"
        );
        let held = bytes(period.mean(row.live_byte_min));
        assert!(
            page.contains(&format!("<tr><td class=\"n\">{held}</td>")),
            "{held}"
        );
    }
    for part in [
        "live",
        "slop",
        "allocator-free",
        "mapped-files",
        "all of it",
    ] {
        assert!(
            page.contains(&format!("<td class=\"name\">{part}</td>")),
            "{part}"
        );
    }
    // Four hours; the planted leak is the first that grew; the other service and the other day are a link away.
    assert_eq!(page.matches("<rect ").count(), 4, "{page}");
    let [from, to] = BUILDS;
    let (_, releases) = page.split_once("Releases compared").unwrap();
    assert!(releases.contains(&format!("under {to} against one under {from}")));
    let leak = &services[0].stacks[services[0].leak.unwrap()].functions[0];
    let first = releases.split("<tr>").nth(2).unwrap();
    assert!(
        first.contains(leak.as_str()) && first.contains("in use"),
        "{first}"
    );
    assert!(page.contains(&format!("&amp;service={one}\"")));
    // Nothing runs, and nothing is loaded.
    assert!(page.contains("Content-Security-Policy: default-src 'none'"));
    assert!(!page.contains("<script") && !page.contains("src="));

    let (status, page) = &answers[1];
    assert_eq!(*status, 200);
    assert!(
        page.contains(&format!("<h1>{one}, ")) && page.contains("under 41 against one under 42")
    );
    assert!(!page.contains(&format!("<td class=\"name\">{}</td>", services[0].name)));
    let (status, said) = &answers[2];
    assert_eq!(*status, 500);
    assert!(said.contains("no rows of `<b>`") && said.contains("Content-Type: text/plain"));
    // A section without an answer says so, and the others stand.
    let (status, page) = &answers[3];
    assert_eq!((*status, page.matches("<section>").count()), (200, 6));
}

#[test]
fn without_the_whole_address_nothing_is_shown() {
    let fleet = judge::made(12, None);
    let serving = Serving::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let whole = get(&serving, "");
    let token = serving.url().split_once("token=").unwrap().1.to_owned();
    assert_eq!(token.len(), 32);
    let other = if token.starts_with('0') { "1" } else { "0" };
    let refused = [
        whole.replace(&format!("?token={token}"), ""),
        whole.replace(&token, ""),
        whole.replace(&token, &token[1..]),
        whole.replace(&token, &format!("{other}{}", &token[1..])),
        whole.replace("Host: 127.0.0.1", "Host: 127.0.0.1.example"),
        whole.replace("Host:", "Not-Host:"),
    ];
    for (at, (status, text)) in asked(&fleet, &serving, &refused).iter().enumerate() {
        assert_eq!(*status, 403, "{at}: {text}");
        assert!(!text.contains("<html"), "{at}");
    }
    let elsewhere = [
        whole.replace("GET /?", "GET /tables?"),
        whole.replace("GET /?", "POST /?"),
    ];
    for (status, text) in asked(&fleet, &serving, &elsewhere) {
        assert_eq!(status, 404, "{text}");
    }
    // Two servers have two tokens.
    let second = Serving::open("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(second.url().split_once("token=").unwrap().1, token);
}
