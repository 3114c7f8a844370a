package ginidempotency

import (
	"reflect"

	"github.com/gin-gonic/gin"
)

// gin does not tell how much of its chain is left. These fields do, which a test looks for.
var (
	indexField, knowsIndex       = reflect.TypeFor[gin.Context]().FieldByName("index")
	handlersField, knowsHandlers = reflect.TypeFor[gin.Context]().FieldByName("handlers")
)

// isLast reports whether the handler of a route that runs now is the last one of its chain. Of requests without a route, the
// middleware is the whole chain.
func isLast(c *gin.Context) bool {
	if c.FullPath() == "" || !knowsIndex || !knowsHandlers {
		return false
	}
	v := reflect.ValueOf(c).Elem()
	return int(v.FieldByIndex(indexField.Index).Int())+1 >= v.FieldByIndex(handlersField.Index).Len()
}
