// A service that knows nothing of idempotency: it takes a moment for each effect, and counts them. It needs Express if
// EXPRESS names where that is, and nothing otherwise.
const work = Number(process.argv[2]);
let count = 0;
async function pay(path) {
  const id = ++count;
  await new Promise(done => setTimeout(done, work));
  return { status: 201, header: { 'Content-Type': 'application/json', Location: path }, body: { id: String(id) } };
}
const routes = { 'POST /charges': pay, 'PATCH /charges': pay, 'POST /payouts': pay, 'GET /count': () => ({ status: 200, header: {}, body: { count } }) };
function listen(app) {
  const server = require('node:http').createServer(app).listen(0, '127.0.0.1', () => console.log(server.address().port));
}
if (process.env.EXPRESS) {
  const app = require(process.env.EXPRESS)();
  for (const [route, handle] of Object.entries(routes)) {
    const [method, path] = route.split(' ');
    app[method.toLowerCase()](path, async (req, res) => {
      const { status, header, body } = await handle(path);
      res.status(status).set(header).json(body);
    });
  }
  listen(app);
} else {
  listen(async (req, res) => {
    const path = req.url.split('?')[0];
    const handle = routes[req.method + ' ' + path];
    const { status, header, body } = handle ? await handle(path) : { status: 404, header: {}, body: {} };
    res.writeHead(status, header);
    res.end(JSON.stringify(body));
  });
}
