//go:build !unix

package client_test

const payingClient = "CLIENT_TEST_URL"

func pay(string) {}
