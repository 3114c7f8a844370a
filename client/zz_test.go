package client_test

const payingClient = "X"

func pay(string) {}
