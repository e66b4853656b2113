// Configuration of Jaeger's page for memory traces (`extensions.jaeger_query.ui.config_file`): attributes of memory first,
// and links from them to the traces and spans that they name, and to the report.
// Jaeger puts this file into its page by a Go regexp replacement: a dollar sign here would be taken for a group.
function UIConfig() {
  // Where `memtrace-otel serve` answers by HTTP (beside Jaeger or a Collector not on 4318; compose/jaeger.yaml publishes it
  // there); '' for no links to the report.
  const REPORT = 'http://localhost:24318/report/';
  const MOST = 12; // links of one attribute

  const ORIGIN = /^[0-9a-f]{32}-[0-9a-f]{16}(?![^])/; // the end is a place with nothing behind it
  const TRACE = /^[0-9a-f]{32}(?![^])/;
  const SPAN = /^[0-9a-f]{16}(?![^])/;

  const list = value => {
    try {
      const parsed = typeof value === 'string' ? JSON.parse(value) : value;
      return Array.isArray(parsed) ? parsed.map(String) : [];
    } catch (_) {
      return [];
    }
  };
  const page = path => new URL(path, document.baseURI).pathname;
  const toSpan = origin => {
    const [trace, span] = String(origin).split('-');
    return page('trace/' + trace) + (span ? '?uiFind=' + span : '');
  };

  // A link on an attribute that holds one value. Patterns see the values of the attributes they name.
  const one = (key, matches, url, text, ...others) => ({
    type: 'tags',
    key,
    value: matches,
    url: { parameters: [key, ...others], template: url },
    text: { parameters: [], template: () => text },
  });

  // Links on an attribute that holds a list: a pattern makes one link, so there is a pattern per place in the menu.
  const each = (key, find, ...others) =>
    Array.from({ length: MOST }, (_, place) => ({
      type: 'tags',
      key,
      value: value => find({ [key]: value }).length > place,
      url: { parameters: [key, ...others], template: data => toSpan(find(data)[place].origin) },
      text: { parameters: [key, ...others], template: data => find(data)[place].text },
    }));

  // What was read, by the span that produced it: one link per span.
  const producers = data => {
    const refs = list(data['memtrace.inputs']);
    const found = new Map();
    list(data['memtrace.inputs.origins']).forEach((origin, place) => {
      if (ORIGIN.test(origin)) found.set(origin, [...(found.get(origin) || []), refs[place] || 'input ' + (place + 1)]);
    });
    return [...found].map(([origin, names]) => ({ origin, text: 'produced ' + [...new Set(names)].join(', ') }));
  };
  // `role|ref|origin` and `type|origin|confidence`.
  const steps = data =>
    list(data['memtrace.failure.evidence'])
      .map(step => step.split('|'))
      .filter(([, , origin]) => ORIGIN.test(origin || ''))
      .map(([role, ref, origin]) => ({ origin, text: role + ': ' + ref }));
  const others = data =>
    list(data['memtrace.failure.alternatives'])
      .map(other => other.split('|'))
      .filter(([, origin]) => ORIGIN.test(origin || ''))
      .map(([type, origin, confidence]) => ({ origin, text: type + ', confidence ' + confidence }));

  const isOrigin = value => ORIGIN.test(value);
  // A pattern looks at one attribute; the others that its link is made of may hold anything.
  const decisive = data => {
    const origin = data['memtrace.failure.trace_id'] + '-' + data['memtrace.failure.span_id'];
    return isOrigin(origin) ? toSpan(origin) : page('search');
  };
  const report = data => {
    const answer = String(data['memtrace.failure.answer']);
    return isOrigin(answer) ? REPORT + answer.slice(0, 32) : REPORT;
  };

  return {
    topTagPrefixes: [
      ...['type', 'reason', 'variable', 'operation', 'when', 'trace_id', 'answer', 'evidence', ''].map(
        name => 'memtrace.failure.' + name,
      ),
      ...['attribution.', 'step.', 'op.', 'inputs', 'outputs', ''].map(name => 'memtrace.' + name),
      'gen_ai.',
    ],
    search: { maxLookback: { label: '30 Days', value: '30d' }, maxLimit: 1500 },
    linkPatterns: [
      one('memtrace.failure.trace_id', value => TRACE.test(value), decisive, 'the decisive operation', 'memtrace.failure.span_id'),
      one('memtrace.failure.span_id', value => SPAN.test(value), decisive, 'the decisive operation', 'memtrace.failure.trace_id'),
      one('memtrace.failure.answer', isOrigin, data => toSpan(data['memtrace.failure.answer']), 'the failing answer'),
      one('memtrace.step.origin', isOrigin, data => toSpan(data['memtrace.step.origin']), 'this step of the evidence'),
      ...each('memtrace.failure.evidence', steps),
      ...each('memtrace.failure.alternatives', others),
      ...each('memtrace.inputs.origins', producers, 'memtrace.inputs'),
      ...(REPORT
        ? [one('memtrace.failure.type', () => true, report, 'report on the failing answer', 'memtrace.failure.answer')]
        : []),
    ],
  };
}
