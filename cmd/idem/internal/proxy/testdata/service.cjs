// A service that knows nothing of idempotency. POST /charges has an effect, a line in a ledger, with some work
// before and after it. It needs Express if EXPRESS names where that is, and nothing otherwise.
const fs = require('node:fs');
const [ledger, work] = [process.argv[2], Number(process.argv[3])];
const pause = () => new Promise(done => setTimeout(done, work));
async function charge(id) {
  await pause();
  const file = fs.openSync(ledger, 'a');
  fs.writeSync(file, id + '\n');
  fs.closeSync(file);
  await pause();
  return { id, charge: Math.random() };
}
function listen(app) {
  const server = require('node:http').createServer(app).listen(0, '127.0.0.1', () => console.log(server.address().port));
}
if (process.env.EXPRESS) {
  const express = require(process.env.EXPRESS);
  const app = express();
  app.use(express.json());
  app.post('/charges', async (req, res) => res.status(201).json(await charge(req.body.id)));
  listen(app);
} else {
  listen((req, res) => {
    let body = '';
    req.on('data', part => { body += part; });
    req.on('end', async () => {
      const answer = await charge(JSON.parse(body).id);
      res.writeHead(201, { 'Content-Type': 'application/json' });
      res.end(JSON.stringify(answer));
    });
  });
}
