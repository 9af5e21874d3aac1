/// The page's style sheet.
///
/// Color-blind readers can tell its colors apart (Okabe and Ito). No color is the only sign of anything.
enum ReportStyle {
  static let text = """
    :root {
      color-scheme: light dark;
      --page: #ffffff; --card: #f5f6f8; --ink: #1b1f24; --soft: #58606b; --line: #d9dde3; --track: #e9ecf0;
      --plain: #8a94a3; --deduplication: #009e73; --codecs: #4aa8df; --similarity: #c4699b; --bases: #b3a100;
      --live: #0072b2; --garbage: #e69f00; --versions: #d55e00; --records: #7b8794; --rest: #b9c1cc;
    }
    @media (prefers-color-scheme: dark) {
      :root {
        --page: #14171b; --card: #1d2126; --ink: #e8eaed; --soft: #a3abb6; --line: #343a42; --track: #262b32;
        --plain: #7d8794; --deduplication: #1fb58c; --codecs: #62b9ec; --similarity: #d88bb5; --bases: #d6c64a;
        --live: #3f9fe0; --garbage: #f0b030; --versions: #f0803c; --records: #8f9aa7; --rest: #566070;
      }
    }
    * { box-sizing: border-box; }
    body {
      margin: 0; background: var(--page); color: var(--ink);
      font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
      font-variant-numeric: tabular-nums;
    }
    main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
    h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
    h2 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 .25rem; }
    p { margin: 0 0 1rem; }
    .path, .lead, .note, figcaption, .top, footer { color: var(--soft); }
    .path { overflow-wrap: anywhere; margin-bottom: 1.75rem; }
    .lead { max-width: 44rem; margin-bottom: 1.1rem; }
    section { margin-top: 2.75rem; padding-top: 1.75rem; border-top: 1px solid var(--line); }
    .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 0; }
    .tiles > div { background: var(--card); border-radius: .5rem; padding: .8rem 1rem; }
    .tiles dt { color: var(--soft); font-size: .85rem; }
    .tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3; white-space: nowrap; }
    .bars { display: grid; gap: .5rem; }
    .row {
      display: grid; grid-template-columns: 15rem 1fr 6rem 6.5rem; column-gap: .9rem; align-items: center;
      min-height: 1.6rem;
    }
    .name { overflow-wrap: anywhere; line-height: 1.3; }
    .key { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; font-size: .85rem; }
    .value, .note { text-align: right; white-space: nowrap; }
    .value { font-weight: 600; }
    .note { font-size: .85rem; }
    .bar { width: 100%; height: .95rem; border-radius: .2rem; display: block; }
    .track { fill: var(--track); }
    .touch { fill: transparent; }
    .axis { stroke: var(--line); stroke-width: 2; }
    .plain { fill: var(--plain); background: var(--plain); }
    .deduplication { fill: var(--deduplication); background: var(--deduplication); }
    .codecs { fill: var(--codecs); background: var(--codecs); }
    .similarity { fill: var(--similarity); background: var(--similarity); }
    .bases { fill: var(--bases); background: var(--bases); }
    .live { fill: var(--live); background: var(--live); }
    .garbage { fill: var(--garbage); background: var(--garbage); }
    .versions { fill: var(--versions); background: var(--versions); }
    .faint { opacity: .35; }
    .records { fill: var(--records); background: var(--records); }
    .rest { fill: var(--rest); background: var(--rest); }
    .legend { display: flex; flex-wrap: wrap; gap: .3rem 1.25rem; margin: 0 0 .75rem; padding: 0; list-style: none; }
    .legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; margin-right: .45rem; }
    figure { margin: 0; }
    .columns svg { width: 100%; height: 11rem; display: block; }
    .top { font-size: .85rem; margin-bottom: .35rem; }
    figcaption { display: flex; justify-content: space-between; gap: 1rem; font-size: .85rem; margin-top: .35rem; }
    figcaption span:last-child { text-align: right; }
    .warning { background: var(--card); border-left: .3rem solid var(--garbage); padding: .8rem 1rem; }
    footer { margin-top: 3rem; font-size: .85rem; }
    @media (max-width: 46rem) {
      main { padding: 1.5rem 1rem 3rem; }
      h1 { font-size: 1.6rem; }
      .tiles { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); }
      .tiles dd { font-size: 1.2rem; }
      .bars { gap: .8rem; }
      .row { grid-template-columns: 1fr 5.5rem 5.5rem; row-gap: .2rem; column-gap: .5rem; }
      .bar { grid-column: 1 / -1; grid-row: 2; }
      .columns svg { height: 9rem; }
    }
    @media print { .tiles > div { border: 1px solid var(--line); } section { break-inside: avoid; } }
    """
}
