package mangen

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// withoutPackage makes cobra's script work without the package bash-completion and its functions.
// COMP_WORDS splits words at = and :, and withoutPackage joins them again.
const withoutPackage = `
__PROG_init_completion()
{
    COMPREPLY=()
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    local i last=0
    words=("${COMP_WORDS[0]}") cword=0
    for ((i = 1; i < ${#COMP_WORDS[@]}; i++)); do
        if ((last > 0)) && [[ ${COMP_WORDS[i]} == [=:] || ${words[last]} == *[=:] ]]; then
            words[last]+=${COMP_WORDS[i]}
        else
            last=$((last + 1))
            words[last]=${COMP_WORDS[i]}
        fi
        if ((i == COMP_CWORD)); then
            cword=$last
        fi
    done
    words=("${words[@]:0:cword+1}")
    cur=${words[cword]} prev=${words[cword-1]}
}

if ! declare -F _filedir >/dev/null 2>&1; then
    _filedir()
    {
        local IFS=$'\n' kind=-f
        [[ ${1-} == -d ]] && kind=-d
        COMPREPLY=($(compgen "$kind" -- "$cur"))
    }
fi
`

func bash(root *cobra.Command, to io.Writer) error {
	if err := root.GenBashCompletionV2(to, true); err != nil {
		return err
	}
	_, err := fmt.Fprint(to, strings.ReplaceAll(withoutPackage, "PROG", root.Name()))
	return err
}
