// Sends the spans and the evaluation that test_clients.py expects: client.cjs grpc|http/protobuf|http/json ENDPOINT
const { ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const { BatchLogRecordProcessor, LoggerProvider } = require("@opentelemetry/sdk-logs");

const [protocol, endpoint] = process.argv.slice(2);
const suffix = { grpc: "grpc", "http/protobuf": "proto", "http/json": "http" }[protocol];
const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${suffix}`);
const { OTLPLogExporter } = require(`@opentelemetry/exporter-logs-otlp-${suffix}`);
const options = (path) => ({ url: protocol === "grpc" ? endpoint : endpoint + path, compression: "gzip" });

const resource = resourceFromAttributes({ "service.name": "client", place: "Zürich 東京 🧠", empty: "" });
const tracing = new BasicTracerProvider({
  resource,
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter(options("/v1/traces")))],
});
const logging = new LoggerProvider({
  resource,
  processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter(options("/v1/logs")) })],
});
const tracer = tracing.getTracer("memtrace_otel.clients", "1.0");
const time = (nanoseconds) => [1700000000, nanoseconds];

const root = tracer.startSpan("turn", { kind: SpanKind.SERVER, startTime: time(1) }, ROOT_CONTEXT);
const inTurn = trace.setSpan(ROOT_CONTEXT, root);
const search = tracer.startSpan(
  "search ✓ 記憶",
  {
    kind: SpanKind.CLIENT,
    startTime: time(123456789),
    attributes: {
      "memtrace.op.kind": "retrieve",
      "memtrace.inputs": ["query:1", "memory:m1"],
      "memtrace.inputs.origins": ["", "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"],
      text: "naïve 東京 🧠\n\t\"'\\",
      empty: "",
      yes: true,
      no: false,
      zero: 0,
      int: -9007199254740991,
      double: 0.1,
      texts: ["a", "", "ü"],
      ints: [1, 0, -3],
      doubles: [0.5, -2.25, 1e300],
      bools: [true, false],
      none: [],
    },
    links: [
      {
        context: { traceId: "0af7651916cd43dd8448eb211c80319c", spanId: "b7ad6b7169203331", traceFlags: 1 },
        attributes: { "memtrace.link.type": "retrieved", "memtrace.link.refs": ["memory:m1"] },
      },
    ],
  },
  inTurn,
);
search.addEvent("cache miss ✗", { count: 3, key: "" }, time(200000000));
search.addEvent("bare", time(200000001));
search.setStatus({ code: SpanStatusCode.ERROR, message: "nicht gefunden ✗" });
search.end(time(987654321));
root.setStatus({ code: SpanStatusCode.OK });
root.end(time(999999999));
logging.getLogger("judge").emit({
  eventName: "gen_ai.evaluation.result",
  timestamp: time(999999999),
  context: inTurn,
  attributes: {
    "gen_ai.evaluation.name": "correctness",
    "gen_ai.evaluation.score.label": "fail",
    "gen_ai.evaluation.score.value": 0.25,
    "gen_ai.evaluation.explanation": "außerhalb",
  },
});

Promise.all([tracing.shutdown(), logging.shutdown()]).then(() => {
  const { traceId, spanId } = root.spanContext();
  console.log(JSON.stringify({ trace: traceId, turn: spanId, search: search.spanContext().spanId }));
});
