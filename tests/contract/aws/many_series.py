"""Spot prices of a region as large as a real one: thousands of series, in pages of a thousand."""

from urllib.parse import parse_qsl

from lab.faces import Handler, Reply, Request

PAGES, ROWS = 4, 1000
_XML = (
    "<DescribeSpotPriceHistoryResponse xmlns='http://ec2.amazonaws.com/doc/2016-11-15/'>"
    "<spotPriceHistorySet>{rows}</spotPriceHistorySet><nextToken>{token}</nextToken>"
    "</DescribeSpotPriceHistoryResponse>"
)


def many_series(face: Handler) -> Handler:
    """The face with these instead of its own spot prices; what is asked for matters to none of them."""
    pages = [_rows(range(number * ROWS, number * ROWS + ROWS)) for number in range(PAGES)]

    def answer(asked: Request) -> Reply:
        if b"SpotPriceHistory" not in asked.body:
            return face(asked)
        page = int(dict(parse_qsl(asked.body.decode())).get("NextToken", "0"))
        token = str(page + 1) if page < PAGES - 1 else ""
        return Reply(200, _XML.format(rows=pages[page], token=token).encode())

    return answer


def prices_micro_usd_h() -> dict[str, int]:
    """What they say, by offer key; each differs, and all are prices that an L4 can have."""
    return {f"aws/use1-az{zone}/g6.xlarge/spot": _micro_usd(zone) for zone in range(PAGES * ROWS)}


def _micro_usd(zone: int) -> int:
    return 300_000 + 10 * zone


def _rows(zones: range) -> str:
    return "".join(
        f"<item><availabilityZone>z{zone}</availabilityZone><availabilityZoneId>use1-az{zone}</availabilityZoneId>"
        "<instanceType>g6.xlarge</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{_micro_usd(zone) / 1e6:.6f}</spotPrice><timestamp>2026-01-01T00:00:00.000Z</timestamp></item>"
        for zone in zones
    )
