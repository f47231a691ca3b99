# bash completion for hearthd(8): the daemon's flags and its offline commands'. Options come from
# `hearthd --help` and `hearthd COMMAND --help`; nothing here has to be kept in step.

_hearthd() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command='' words=''
    case ${COMP_WORDS[1]} in
    bench | probe | perplexity) ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]} ;;
    esac
    case $prev in
    --isa) words='c avx2 avx512 amx' ;;
    --kv-type) words='f16 q8_0' ;;
    --format)
        words='table json'
        [[ $command == bench ]] && words+=' csv'
        ;;
    --log-level) words='error warn info debug' ;;
    --serve) words='all one' ;;
    --unknown-model) words='refuse default' ;;
    --summary) words='auto model extract' ;;
    --tokenizer-nfc) words='model off' ;;
    --speculation) words='on off' ;;
    --context) words='error window summarise retrieve prune auto' ;;
    --config | --model | --embedding-model | --socket | --api-key-file | --state-dir | --cache-dir | \
        --chat-template | --logits)
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    *)
        if [[ $cur == -* ]]; then
            words=$(hearthd $command --help 2>/dev/null | grep -oE '(^  |[[ ])--[a-z-]+' | grep -o -- '--.*')
            [[ -n $command ]] && words+=' --help'
        elif ((COMP_CWORD == 1)); then
            words='bench probe perplexity'
        elif [[ $command == perplexity ]]; then
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur" | sort -u)
}
complete -F _hearthd hearthd
