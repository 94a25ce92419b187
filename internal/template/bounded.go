package template

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
)

// CEL counts the cost of a call when it has returned. For most functions that
// is early enough, because what they return is no larger than what they were
// given. A few can be asked by a source, through an expression that looks
// harmless, for more than there is memory: those are bounded here, before they
// allocate.
const (
	// maxText is the size of one string that an expression makes, in bytes: more
	// than any place for it can hold.
	maxText = 2 * MaxFiles

	// maxRange is the length of a list that lists.range makes.
	maxRange = 100_000

	// maxPrecision is the number of digits that format writes after the point.
	maxPrecision = 100
)

// boundedStrings are the string functions of CEL whose results can be larger
// than all of their arguments together, with a bound.
func boundedStrings() []cel.EnvOption {
	text, list := cel.StringType, cel.ListType(cel.StringType)
	return []cel.EnvOption{
		ext.Strings(ext.StringsVersion(2), ext.StringsMaxPrecision(maxPrecision)),
		cel.Function("replace",
			cel.MemberOverload("string_replace_string_string", []*cel.Type{text, text, text}, text,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return replace(args[0], args[1], args[2], types.Int(-1)) })),
			cel.MemberOverload("string_replace_string_string_int", []*cel.Type{text, text, text, cel.IntType}, text,
				cel.FunctionBinding(func(args ...ref.Val) ref.Val { return replace(args[0], args[1], args[2], args[3]) })),
		),
		cel.Function("join",
			cel.MemberOverload("list_join", []*cel.Type{list}, text,
				cel.UnaryBinding(func(l ref.Val) ref.Val { return join(l, types.String("")) })),
			cel.MemberOverload("list_join_string", []*cel.Type{list, text}, text,
				cel.BinaryBinding(join)),
		),
	}
}

func replace(in, from, to, limit ref.Val) ref.Val {
	s, ok1 := in.(types.String)
	o, ok2 := from.(types.String)
	n, ok3 := to.(types.String)
	most, ok4 := limit.(types.Int)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return types.NoSuchOverloadErr()
	}
	count := strings.Count(string(s), string(o))
	if most >= 0 && int(most) < count {
		count = int(most)
	}
	if grows := len(n) - len(o); grows > 0 && count > (maxText-len(s))/grows {
		return tooLarge("replace")
	}
	return types.String(strings.Replace(string(s), string(o), string(n), count))
}

func join(in, between ref.Val) ref.Val {
	list, ok := in.(traits.Lister)
	separator, isText := between.(types.String)
	if !ok || !isText {
		return types.NoSuchOverloadErr()
	}
	var out strings.Builder
	for it, first := list.Iterator(), true; it.HasNext() == types.True; first = false {
		item, ok := it.Next().(types.String)
		if !ok {
			return types.NewErr("join: an element of the list is no string")
		}
		if !first {
			out.WriteString(string(separator))
		}
		if out.Len()+len(item) > maxText {
			return tooLarge("join")
		}
		out.WriteString(string(item))
	}
	return types.String(out.String())
}

func tooLarge(function string) ref.Val {
	return types.WrapErr(fmt.Errorf("%s: the result is larger than %d MiB", function, maxText>>20))
}
