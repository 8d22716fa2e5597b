"""Function words of twelve European languages and of Chinese, Japanese and Korean, lower case.

Kept short on purpose: articles, pronouns, prepositions, conjunctions, auxiliaries. The large published lists also drop
words that people search for ("system", "value", "work", "help"). Months, numbers and negations of meaning ("without",
"never") stay searchable.
"""

from __future__ import annotations

_LISTS = {
    "en": """
 a about above after again against all also am an and any are aren't as at be because been before being below between both but by can
 can't cannot could couldn't did didn't do does doesn't doing don't down during each either else ever every few for from further had
 hadn't has hasn't have haven't having he he'd he'll he's her here here's hers herself him himself his how how's however i i'd i'll i'm
 i've if in into is isn't it it'd it'll it's its itself just let's me more most much must mustn't my myself nor not of off on once only
 or other ought our ours ourselves out over own please same shall shan't she she'd she'll she's should shouldn't so some such than that
 that'll that's the their theirs them themselves then there there's these they they'd they'll they're they've this those through thus
 to too under until up upon us very was wasn't we we'd we'll we're we've were weren't what what's when when's where where's whether
 which while who who's whom whose why why's will with won't would wouldn't yet you you'd you'll you're you've your yours yourself
 yourselves""",
    "de": """
 aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes auch auf aus bei beim bin bis bist da
 dabei dadurch dafür dagegen daher damit danach dann daran darauf daraus darin darum darüber das dass dasselbe dazu dein deine deinem
 deinen deiner deines dem den denn der deren derer des dessen dich die dies diese diesem diesen dieser dieses dir doch dort du durch
 ein eine einem einen einer eines einige er es etwas euch euer eure für gegen gewesen hab habe haben habt hat hatte hatten hier hin
 hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist ja jede jedem jeden jeder jedes jene jenem jenen jener
 jenes jetzt kann kannst kein keine keinem keinen keiner keines können könnte man manche mein meine meinem meinen meiner meines mich
 mir mit muss musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner seines seit selbst sich sie sind
 so solche solchem solchen solcher solches soll sollte sondern sonst sowie um und uns unser unsere unserem unseren unter viel vom von
 vor wann war waren warst warum was weg weil weiter welche welchem welchen welcher welches wenn wer werde werden weshalb wie wieder
 wieso will wir wird wirst wo wohin wollen wollte wurde wurden während würde würden zu zum zur zwar zwischen über""",
    "fr": """
 à ai aie aient ainsi alors après as au aucun aura aurait aussi autre aux avaient avais avait avant avec avez avoir avons ayant c'est
 car ce ceci cela celle celles celui ces cet cette ceux chaque chez ci comme comment d'un d'une dans de depuis des donc dont du elle
 elles en encore entre es est et étaient étais était étant été être eu eux fait furent fut ici il ils j'ai je jusque l'on la là
 laquelle le lequel les lesquels leur leurs lors lorsque lui ma mais me même mêmes mes moi mon ne n'est ni nos notre nous on ont ou où
 par parce pas pendant peu peut plus pour pourquoi puis qu'elle qu'il qu'on quand que quel quelle quelles quels qui quoi s'est sa se
 sera serait ses si sien son sont sous suis sur ta te tes toi ton tous tout toute toutes très tu un une vers voici voilà vos votre vous
 y""",
    "es": """
 a al algo algún alguna algunas alguno algunos ante antes aquel aquella aquellos aquí así aún aunque cada como cómo con contra cual
 cuál cuales cuáles cualquier cuando cuándo cuanto cuánto de del desde donde dónde dos durante e el él ella ellas ellos en entre era
 eran es esa esas ese eso esos esta está estaba estaban estamos están estar estas este esto estos estoy fue fueron ha había habían
 haber han has hasta hay he hemos la las le les lo los más me mi mis mí mientras muy nada ni nos nosotros nuestra nuestras nuestro
 nuestros o os otra otras otro otros para pero poco por porque pues que qué quien quién quienes se sea ser si sí sido sin sobre sois
 somos son soy su sus suyo también tanto te tiene tienen toda todas todo todos tu tú tus un una unas uno unos usted ustedes vosotros y
 ya yo""",
    "it": """
 a abbiamo ad agli ai al alla alle allo anche ancora avere aveva avevano avuto c'è che chi ci ciò coi col come con contro cosa così cui
 da dagli dai dal dalla dalle dallo degli dei del dell' della delle dello dentro di dopo dove due e è ed era erano essere fa fra fu già
 gli ha hanno ho i il in io l' la le lei li lo loro lui ma me mentre mi mia mie miei mio molto ne negli nei nel nella nelle nello noi
 nostra nostre nostri nostro o ogni ora per perché però più poi qual quale quali quando quanto quella quelle quelli quello questa
 queste questi questo qui se sei sia siamo siete sono sopra sta stata stati stato su sua sue sugli sui sul sulla sulle suo suoi tra tu
 tua tue tuo tuoi tutti tutto un un' una uno vi voi vostro""",
    "pt": """
 a à ao aos aquela aquelas aquele aqueles aquilo as às até cada com como da das de dela delas dele deles depois desde do dos e é ela
 elas ele eles em entre era eram essa essas esse esses esta está estamos estão estar estas estava estavam este esteja estes estou eu
 foi foram fosse fui há havia isso isto já lhe lhes mais mas me mesmo meu meus minha minhas muito muitos na nas nem no nos nós nossa
 nossas nosso nossos num numa o os ou outra outras outro outros para pela pelas pelo pelos por porque qual quais quando quanto que quê
 quem são se seja sem ser será seu seus sob sobre sou sua suas só também tão te tem têm tenho ter teu teve tinha tu tua um uma umas uns
 você vocês""",
    "nl": """
 aan af al alle alles als altijd andere ben bij bent daar dan dat de der deze die dit doch doen door dus een eens en er ge geen geweest
 had hadden heb hebben heeft hem het hier hij hoe hun iemand iets ik in is ja je jij jou jouw jullie kan kon kunnen maar me meer men
 met mij mijn moet moeten na naar niet niets nog nu of om omdat onder ons onze ook op over reeds te tegen toch toen tot u uit uw van
 veel voor waar waarom wanneer want waren was wat we wel welke werd werden wie wij wil worden wordt zal ze zei zelf zich zij zijn zo
 zonder zou zouden""",
    "sv": """
 alla allt än är åt att av bara bli blir blev de deg dem den denna deras dess dessa det detta dig din dina ditt du där då efter ej
 eller en er ert ett från för ha hade han hans har henne hennes hon honom hur här i icke ingen inom inte ja jag kan kunde man med
 mellan men mig min mina mitt mot mycket ni nu när någon något några och om oss på samma sedan sig sin sina sitt själv ska skall skulle
 som så sådan till under upp ut utan vad var vara varför varit varje vars vart vem vi vid vilka vilken vilket vår våra vårt över""",
    "da": """
 ad af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din disse dog du efter eller en end er et for
 fra ham han hans har havde have hende hendes her hos hun hvad hvem hvilken hvis hvor hvordan hvorfor hvornår i ikke ind jeg jer jo kan
 kunne man mange med meget men mig min mine mit mod ned noget nogle nogen når og også om op os over på selv sig sin sine sit skal
 skulle som sådan thi til ud under var vi vil ville vor være været""",
    "no": """
 alle at av både bare begge ble blei bli blir da de deg dei dem den denne der dere deres det dette di din disse du då eg ein eit eitt
 eller elles en er et ett etter for fordi fra før ha hadde han hans har henne hennes her hun hva hvem hver hvilke hvilken hvis hvor
 hvordan hvorfor i ikke ikkje inn ingen ja jeg kan kom korleis kun kunne kva kvar man mange med meg meget mellom men mens mer min mine
 mitt mot mye må når noe noen nokon nå og også om opp oss over på samme seg selv sin sine sitt skal skulle slik som så til um under upp
 ut uten var vart vår være vært vi vil ville vore vors""",
    "fi": """
 ei eivät emme en et ette että he hän häneen hänelle häneltä hänen hänessä hänestä hänet häntä he heidän heille heitä hei itse ja jo
 joka joiden joissa joista jolla jolle jonka jos jossa josta jota jotka kanssa keitä ken kenen ketä koska kuin kuinka kuka kun kyllä me
 meidän meille meitä mihin mikä mikäli miksi milloin mille millä minkä minua minulla minulle minun minut minä missä mistä mitä mitkä
 mukaan mutta myös ne niiden niille niin niitä noin nyt näiden näitä nämä näin ole olemme olen olet olette oli olimme olin olisi olit
 olivat olla olleet ollut on ovat sekä se sen siinä siitä sinua sinulla sinun sinä sitä siellä sillä tai te teidän teitä tuo tuon tämä
 tämän tässä tästä tätä vaan vai vaikka vain voi yli""",
    "ru": """
 а без более больше будет будто бы был была были было быть в вам вас ведь весь во вот все всего всех всю вы где да даже для до его ее
 ей если есть еще ещё её же за зачем здесь и из или им ими их к как какая какой каких когда конечно который которая которые которого
 кто куда ли либо лишь между меня мне мной мог может можно мои мой моя мы на над надо нам нас не него нее ней нет неё ни них но ну о об
 один около он она они оно от перед по под после потом потому почему почти при про раз разве с сам свой свою себе себя сейчас со так
 также такой там тебя тем теперь то тогда того тоже той только том тот ту тут ты у уж уже хотя чего чей чем через что чтоб чтобы чуть
 эта эти этим этих это этого этой этом этот эту я""",
}

STOP_WORDS: dict[str, frozenset[str]] = {language: frozenset(words.split()) for language, words in _LISTS.items()}

# Character pairs that carry grammar only. Pairs, because that is what an index of these languages holds.
_PAIRS = """
 我们 你们 他们 她们 它们 这个 那个 这些 那些 这样 那样 什么 怎么 怎样 如何 为何 为什 哪个 哪些 哪里 哪位 多少 几个 因为 所以 但是 而且
 或者 如果 虽然 然后 以及 并且 可以 已经 还是 不是 就是 也是 都是 是的 的是 了一 是一 一个 一些 一种 之一 其中 对于 关于 由于 根据 同时
 此外 另外 其他 是否 是在 在这 在那 です ます した して いる ある こと もの から まで など これ それ あれ この その あの では には とは
 とし ので のは のが のを のに まし せん でし であ った って いた いま れた れる られ なり なる なっ する すれ しま たち たと にお おい
 おけ いて ため よう うな うに また さら しか かし だが だっ なぜ どの どれ どこ だれ いつ なに 何で 何を 何が いく くつ らい くら すか
 습니 니다 입니 이다 에서 으로 에게 하는 하고 그리 리고 그러 러나 하지 지만 무엇 어떤 어디 언제 누가 었다 였다 했다 하였 있다 있는 것은
 것이 것을
"""
STOP_PAIRS: frozenset[str] = frozenset(_PAIRS.split())
