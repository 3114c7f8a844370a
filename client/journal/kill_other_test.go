//go:build windows

package journal_test

const payingClient = "JOURNAL_TEST_URL"

func pay(string) {}
