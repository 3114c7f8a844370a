// Package promoted reads fields and methods through a struct that only embeds.
package promoted

type car struct{ *engine }

func build() *car {
	park()
	return &car{&engine{}}
}
