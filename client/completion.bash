# bash completion for hearth(1). Commands and options come from `hearth help`, ids from the daemon
# if it is there; nothing here has to be kept in step.

_hearth() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' words='' i
    local -a where=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --socket | --url | --api-key-file) where+=("${COMP_WORDS[i]}" "${COMP_WORDS[++i]}") ;;
        --wait) ((i++)) ;;
        -*) ;;
        *)
            command=${COMP_WORDS[i]}
            break
            ;;
        esac
    done
    case $prev in
    --set | --context)
        words='error window summarise retrieve prune auto'
        [[ $prev == --set ]] && words+=' default'
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        return
        ;;
    --socket | --api-key-file | --output | --summary | --facts)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    esac
    if [[ $command == replay && ($prev == --json || $prev == --csv) ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    fi
    if [[ $cur == -* ]]; then
        words=$(hearth help $command 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
    elif [[ -z $command || $command == help ]]; then
        words=$(hearth help 2>/dev/null | sed -n '/^Options:/q; s/^  \([a-z]*\) .*/\1/p')
    elif [[ $command == import || $command == replay ]]; then
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
    elif [[ $command == cache && $prev == cache ]]; then
        words='list drop pin unpin'
    elif [[ $command == summary && $prev == summary && $cur != conv* ]]; then
        words='show edit'
    elif [[ $command == cache || $command == show || $command == delete || $command == export || $command == verify ||
        $command == stats || $command == context || $command == cut || $command == summary ||
        $prev == --open || $prev == --after || $prev == --conversation ]]; then
        words=$(hearth "${where[@]}" --json list --limit 100 2>/dev/null |
            sed -n 's/^{"id":"\(conv_[0-9a-f]*\)".*/\1/p')
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _hearth hearth
