package browsertest

import (
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// This file is a keyboard. Whatever it reaches, it reaches by Tab.

// search types into the box at the top of each page, and presses Enter.
func (b *browser) search(text string) {
	b.t.Helper()
	b.write("#q", text)
	b.enter()
}

// write types into a field.
func (b *browser) write(field, text string) {
	b.t.Helper()
	b.goTo(field)
	run(b, chromedp.KeyEvent(text))
}

// press goes to a link or a button, and presses Enter.
func (b *browser) press(what string) {
	b.t.Helper()
	b.goTo(what)
	b.enter()
}

// tick goes to a box, and presses the space bar.
func (b *browser) tick(box string) {
	b.t.Helper()
	b.goTo(box)
	run(b, chromedp.KeyEvent(" "))
}

// enter presses Enter where the focus is, and waits for the page that it leads to.
func (b *browser) enter() {
	b.t.Helper()
	_, err := chromedp.RunResponse(b.ctx, chromedp.KeyEvent(kb.Enter))
	require.NoError(b.t, err)
}

// goTo presses Tab until a control has the focus, and can be seen to have it.
func (b *browser) goTo(what string) {
	b.t.Helper()
	require.True(b.t, b.tab(what), "Tab does not lead to %s", what)
	require.NotEqual(b.t, "none", run(b, chromedp.Evaluate[string](`getComputedStyle(document.activeElement).outlineStyle`)), "nobody sees that %s has the focus", what)
}

// mostTabs is more than any page here has controls.
const mostTabs = 200

// tab presses Tab until the control that a selector names has the focus, and reports whether it gets there: the focus must
// not stay where it is, and must not come by the beginning of the page twice.
func (b *browser) tab(to string) bool {
	b.t.Helper()
	const focus = `(() => { window.last = window.now; window.now = document.activeElement; return now === document.body ? "body" : now === last ? "stays" : "moves" })()`
	rounds := 0
	for range mostTabs {
		if run(b, chromedp.Evaluate[bool](`document.activeElement.matches(`+"`"+to+"`"+`)`)) {
			return true
		}
		run(b, chromedp.KeyEvent(kb.Tab))
		switch run(b, chromedp.Evaluate[string](focus)) {
		case "stays":
			return false
		case "body":
			rounds++
		}
		if rounds > 1 {
			return false
		}
	}
	return false
}

// An engineer finds a key, decides about it, and then about several, without a mouse.
func TestKeyboardAlone(t *testing.T) {
	s := serve(t)
	b := browse(t)
	run(b, chromedp.Navigate(s.address))
	run(b, chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "To the content", run(b, chromedp.Text(":focus")))
	b.enter()
	b.search("shop charge-1")
	require.Contains(t, run(b, chromedp.Text("main")), "POST /charges")
	b.write("#reason", "the bank has nothing")
	b.tick(`input[name="not_done"]`)
	b.press(`button[value="resume"]`)
	require.Contains(t, run(b, chromedp.Text(`[role="status"]`)), "The next request with this key runs as attempt 2.")
	require.Equal(t, "released", s.look("charge-1").State.String())

	b.press(`nav a:first-child`)
	b.press("article footer a")
	b.write("#reason", "the bank was down, and has none of them")
	b.write("#count", "3")
	b.press(`button[value="resume"]`)
	require.Contains(t, run(b, chromedp.Text("main")), "3 keys were decided")
	require.Equal(t, "released", s.look("payout-3").State.String())
	require.Empty(t, b.complaints())
}

// A control that no Tab leads to is noticed.
func TestKeyboardDoesNotReachEverything(t *testing.T) {
	b := browse(t)
	run(b, chromedp.Navigate("data:text/html,"+url.PathEscape(`<title>a</title><a id=a href=x>a</a><a id=b href=x tabindex=-1>b</a><a id=c href=x>c</a><p id=d onclick=x>d</p>`)))
	require.True(t, b.tab("#a"))
	require.True(t, b.tab("#c"))
	require.True(t, b.tab("#a"), "it comes by again")
	require.False(t, b.tab("#b"))
	require.False(t, b.tab("#d"))
}
