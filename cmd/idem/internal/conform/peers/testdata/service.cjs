// A service on Express that takes a moment for each effect, and counts them. It knows nothing of idempotency, unless the
// second argument says that express-idempotency protects it. NODE_MODULES is where both packages are.
const load = name => require(process.env.NODE_MODULES + '/' + name);
const express = load('express');
const [work, by] = [Number(process.argv[2]), process.argv[3]];
const app = express();
let count = 0;
let isHit = () => false;
app.use(express.json());
if (by) {
  const peer = load(by);
  app.use(peer.idempotency());
  isHit = req => peer.getSharedIdempotencyService().isHit(req);
}
const pay = async (req, res) => {
  if (isHit(req)) return;
  const id = String(++count);
  await new Promise(done => setTimeout(done, work));
  res.status(201).location(req.path).json({ id });
};
app.post('/charges', pay);
app.patch('/charges', pay);
app.post('/payouts', pay);
app.get('/count', (req, res) => res.json({ count }));
const server = require('node:http').createServer(app).listen(0, '127.0.0.1', () => console.log(server.address().port));
